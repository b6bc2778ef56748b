"""The `saltwm` command, `python -m saltwm`, and what torchrun starts."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line also while it is still being imported."""
    try:
        from saltwm import cli

        cli.main()
    except KeyboardInterrupt:
        print("saltwm: stopped before it began", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
