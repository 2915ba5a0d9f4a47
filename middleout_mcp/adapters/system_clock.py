"""The real clock."""

from datetime import UTC, datetime


class SystemClock:
    """The machine's time."""

    def now(self) -> datetime:
        """Aware, UTC, cut to whole milliseconds."""
        time = datetime.now(UTC)
        return time.replace(microsecond=time.microsecond // 1000 * 1000)
