# Third-party packages, by their Debian 12 names in ./dev.
find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
find_package(Eigen3 3.4 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(TBB REQUIRED)
find_package(SQLite3 3.40 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(GTest 1.12 REQUIRED)
find_package(benchmark 1.7 REQUIRED)

find_package(PkgConfig REQUIRED)
pkg_check_modules(CBC REQUIRED IMPORTED_TARGET cbc osi-clp)
