"""`python -m saltwm`, which is also what torchrun starts."""

from saltwm.cli import main

if __name__ == "__main__":
    main()
