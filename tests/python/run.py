"""Runs pytest on files of this folder for CTest: run.py [ARGUMENTS OF PYTEST]

Exit status 77 means that nothing was tested: all tests were skipped, or pytest is missing.
"""

import sys

NOTHING_TESTED = 77


class Counts:
    """Counts tests that ran."""

    passed = 0

    def pytest_runtest_logreport(self, report):
        self.passed += report.when == "call" and report.passed


def main():
    sys.dont_write_bytecode = True
    try:
        import pytest
    except ImportError:
        print("Python has no pytest: './dev test' installs python3-pytest, python3-venv and what else tests need")
        return NOTHING_TESTED
    counts = Counts()
    code = pytest.main(["-p", "no:cacheprovider", "-q", "-rs", *sys.argv[1:]], plugins=[counts])
    return NOTHING_TESTED if code == 0 and counts.passed == 0 else code


# Tests start processes that import this file again.
if __name__ == "__main__":
    sys.exit(main())
