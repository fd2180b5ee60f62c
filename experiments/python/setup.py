"""The wheel contains the executable for one platform and works with every Python 3; ./dev wheel calls this file."""

import re
from pathlib import Path

from setuptools import setup
from setuptools.dist import Distribution
from wheel.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class WithExecutable(Distribution):
    def has_ext_modules(self):
        return True


here = Path(__file__).resolve().parent
cmake = here / "CMakeLists.txt"  # ./dev wheel puts the project's CMakeLists.txt next to this file
version = re.search(r"project\(dflop VERSION (\S+)", cmake.read_text()).group(1)
setup(version=version, cmdclass={"bdist_wheel": PlatformWheel}, distclass=WithExecutable)
