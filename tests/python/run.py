"""Runs pytest on files of this folder for CTest: run.py [ARGUMENTS OF PYTEST]

Exit status 77 says that nothing was tested: all tests were skipped, or there is no pytest.
"""

import sys

sys.dont_write_bytecode = True
NOTHING_TESTED = 77

try:
    import pytest
except ImportError:
    print("Python has no pytest: './dev test' installs python3-pytest, python3-venv and what else tests need")
    sys.exit(NOTHING_TESTED)


class Counts:
    """Counts tests that ran."""

    passed = 0

    def pytest_runtest_logreport(self, report):
        self.passed += report.when == "call" and report.passed


counts = Counts()
code = pytest.main(["-p", "no:cacheprovider", "-q", "-rs", *sys.argv[1:]], plugins=[counts])
sys.exit(NOTHING_TESTED if code == 0 and counts.passed == 0 else code)
