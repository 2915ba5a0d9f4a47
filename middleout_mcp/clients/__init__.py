"""The programs that start this server: where they keep their configuration, and how our entry gets in and out of it."""
