"""The `saltwm` command, `python -m saltwm`, and what torchrun starts."""

import os
import select
import sys

READER_LEFT = 141
"""What a shell gives for a command whose output nobody reads to its end, as before `| head`."""


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line also while it is still being imported."""
    try:
        try:
            from saltwm import cli

            cli.main()
        finally:
            sys.stdout.flush()  # here, and not when Python ends, where an error could not be met
    except KeyboardInterrupt:
        print("saltwm: stopped before it began", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        if not _reader_left():
            raise  # another pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still buffered
        sys.exit(READER_LEFT)


def _reader_left() -> bool:
    """Whether nobody reads what is printed any more."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


if __name__ == "__main__":
    main()
