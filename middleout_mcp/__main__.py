"""`python -m middleout_mcp` is the command `middleout-mcp`."""

from middleout_mcp.cli.main import main

if __name__ == "__main__":
    main()
