# Third-party packages, by their Debian 12 names in ./dev.
find_package(Boost 1.74 REQUIRED COMPONENTS context program_options)
find_package(Eigen3 3.4 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(TBB REQUIRED)
find_package(SQLite3 3.40 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(ICU 72 REQUIRED COMPONENTS uc i18n)
find_package(JPEG REQUIRED)
find_package(PNG 1.6 REQUIRED)
find_package(yaml-cpp 0.7 REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(GTest 1.12 REQUIRED)
find_package(benchmark 1.7 REQUIRED)

find_package(PkgConfig REQUIRED)
pkg_check_modules(CBC REQUIRED IMPORTED_TARGET cbc osi-clp)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp)
pkg_check_modules(SOXR REQUIRED IMPORTED_TARGET soxr)

# Video files are read with FFmpeg's libraries, if installed: Debian's libavformat-dev, libavcodec-dev, libavutil-dev and
# libswscale-dev. They pull in 150 packages, so ./dev does not install them.
option(DFLOP_FFMPEG "Read video files with FFmpeg's libraries, if installed" ON)
if(DFLOP_FFMPEG)
  pkg_check_modules(FFMPEG IMPORTED_TARGET libavformat>=59 libavcodec>=59 libavutil>=57 libswscale>=6)
endif()
