// Pictures as PNG and PDF: if the converters are installed, the files have the right format; if not, one
// error says what to install.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run.hpp"

namespace dflop {
namespace picture_test {

using testing::Sandbox;

struct Picture : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override { testing::write_all(sandbox.path("p.json"), testing::two_stages()); }
  testing::RunResult draw(const std::string& file) const {
    return sandbox.run("simulate --pipeline p.json --picture " + file);
  }
};

TEST_F(Picture, SvgIsSelfContained) {
  const auto result = draw("t.svg");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string svg = testing::read_all(sandbox.path("t.svg"));
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 80);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST_F(Picture, FollowsItsFileExtension) {
  if (std::system("rsvg-convert --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "rsvg-convert is not installed";
  ASSERT_EQ(draw("t.png").exit_code, 0);
  EXPECT_TRUE(testing::read_all(sandbox.path("t.png")).starts_with("\x89PNG"));
  ASSERT_EQ(draw("t.PDF").exit_code, 0);
  const std::string pdf = testing::read_all(sandbox.path("t.PDF"));
  EXPECT_TRUE(pdf.starts_with("%PDF-"));
  ASSERT_EQ(draw("again.pdf").exit_code, 0);
  EXPECT_EQ(testing::read_all(sandbox.path("again.pdf")), pdf) << "the same input gives the same bytes";
}

TEST_F(Picture, NamesThePackageToInstall) {
  const char* path = std::getenv("PATH");
  const std::string before = path == nullptr ? "" : path;
  // The shell that runs dflop is named by its path, so only the programs that dflop looks for are missing.
  setenv("PATH", "/nonexistent", 1);
  const auto result = draw("t.png");
  setenv("PATH", before.c_str(), 1);
  testing::expect_error(result, {"option '--picture'", "rsvg-convert", "librsvg2-bin"});
  EXPECT_FALSE(sandbox.has("t.png"));
}

TEST_F(Picture, OtherFormatsAreRejected) {
  testing::expect_error(draw("t.jpg"), {"option '--picture'", "SVG, PNG or PDF", "t.jpg"});
}

}  // namespace picture_test
}  // namespace dflop
