#include "traces/media/video.hpp"

#include "core/refuse.hpp"

#ifdef DFLOP_FFMPEG
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "traces/media/codecs.hpp"
#include "traces/media/orientation.hpp"

namespace dflop {
namespace {

struct FreeVideo {
  void operator()(AVIOContext* io) const {
    av_freep(&io->buffer);
    avio_context_free(&io);
  }
  void operator()(AVFormatContext* format) const { avformat_close_input(&format); }
  void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
};
template <typename T>
using Freed = std::unique_ptr<T, FreeVideo>;

/// Returns an object that FFmpeg made, whose only reason for a failure is a lack of memory.
template <typename T>
Freed<T> made(T* object) {
  if (object == nullptr) throw std::bad_alloc();
  return Freed<T>(object);
}

std::string problem_of(int code) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(code, text.data(), text.size());
  return text.data();
}

/// A FramePlace says where a frame is in a file.
struct FramePlace {
  std::int64_t frame = 0;  ///< number
  std::int64_t time = 0;   ///< of its presentation, in the stream's units
  std::int64_t key = 0;    ///< the packet from which a decoder finds it, counted from 0
};

/// A VideoReader is one run of FFmpeg over a file.
class VideoReader {
 public:
  explicit VideoReader(const VideoFile& video) : video_(video) {
    static std::once_flag silent;
    std::call_once(silent, [] { av_log_set_level(AV_LOG_QUIET); });  // errors are thrown instead
    open();
    const bool has_header = (format_->ctx_flags & AVFMTCTX_NOHEADER) == 0;
    if (!has_header) probe();  // only packets tell the streams
    for (unsigned s = 0; s < format_->nb_streams; ++s) format_->streams[s]->discard = AVDISCARD_ALL;
    const int found = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
    if (found < 0)
      refuse_input(video_.name, "expected a video, found {} streams without pictures", format_->nb_streams);
    stream_ = format_->streams[found];
    stream_->discard = AVDISCARD_DEFAULT;
    // Probing decodes the first frames, so it is left out if the headers have everything.
    const bool has_all =
        header_frames() > 0 && stream_->avg_frame_rate.num > 0 && stream_->codecpar->width > 0;
    if (has_header && !has_all) probe();
  }

  /// Returns the upright shape. Reads the packets if the headers lack the number of frames.
  VideoShape shape() {
    const ImageSize stored = stored_size();
    // The mean rate, as PyAV, decord and torchcodec have it. Without probing, there is no other.
    const AVRational mean = stream_->avg_frame_rate;
    const AVRational rate =
        mean.num > 0 && mean.den > 0 ? mean : av_guess_frame_rate(format_.get(), stream_, nullptr);
    VideoShape shape{header_frames(), av_q2d(rate), orientation().turned(stored)};
    while (header_frames() == 0 && read_packet()) shape.frames += is_shown() ? 1 : 0;
    if (shape.frames < 1) refuse_input(video_.name, "expected a video of at least 1 frame, found none");
    if (!(shape.fps > 0 && shape.fps <= 1e4)) {
      refuse_input(video_.name, "expected a frame rate of at most 10000 per second, found {}", shape.fps);
    }
    return shape;
  }

  /// Decodes all frames from the first one to the last of `frames`.
  void decode(std::span<const std::int64_t> frames, const std::function<void(RgbImage)>& take) {
    if (frames.empty()) return;
    start_decoder();
    std::int64_t number = 0;
    std::size_t next = 0;
    while (next < frames.size()) {
      const int code = receive_frame();
      if (code == AVERROR_EOF)
        refuse_input(video_.name, "expected frame {}, found the end after {} frames", frames[next], number);
      if (code < 0) refuse_frame(number, code);
      if (number == frames[next]) {
        take(orientation().turned(picture(number)));
        ++next;
      }
      ++number;
    }
  }

  /// Reads all packets. Returns where the frames with these numbers are, or nothing if packets do not tell,
  /// or if a decoder needs nearly all of them.
  std::vector<FramePlace> places_of(std::span<const std::int64_t> frames) {
    if (!gives_a_frame_per_packet()) return {};
    std::vector<std::int64_t> keys;                            // packets
    std::vector<std::pair<std::int64_t, std::int64_t>> times;  // and packets
    std::vector<std::int64_t> time_of;
    while (read_packet()) {
      const auto number = std::ssize(times);
      const bool is_key = (packet_->flags & AV_PKT_FLAG_KEY) != 0;
      if (packet_->pts == AV_NOPTS_VALUE || !is_shown() || (number == 0 && !is_key)) return {};
      if (is_key) keys.push_back(number);
      times.emplace_back(packet_->pts, number);
      time_of.push_back(packet_->pts);
    }
    std::ranges::sort(times);
    const auto is_same = [](const auto& a, const auto& b) { return a.first == b.first; };
    if (std::ranges::adjacent_find(times, is_same) != times.end()) return {};
    // Frames before the first key frame are not decoded, so numbers would not be ranks.
    if (times.empty() || times[0].second != 0 || frames.back() >= std::ssize(times)) return {};
    std::vector<FramePlace> places;
    std::int64_t decoded = 0;
    std::int64_t end = 0;  // after the last decoded packet
    for (const std::int64_t frame : frames) {
      const auto& [time, packet] = times[static_cast<std::size_t>(frame)];
      // A frame that is shown before a key frame but stored after it may need previous ones.
      auto key = std::ranges::upper_bound(keys, packet) - 1;
      while (time_of[static_cast<std::size_t>(*key)] > time) --key;
      places.push_back({frame, time, *key});
      decoded += std::max(packet + 1 - std::max(*key, end), std::int64_t{0});
      end = std::max(end, packet + 1);
    }
    return 2 * decoded < end ? places : std::vector<FramePlace>();
  }

  /// Decodes frames at their places, and skips packets between them. @return how many frames it took; less
  /// than all if a decoder's frames are not where they should be
  std::size_t decode_at(std::span<const FramePlace> places, const std::function<void(RgbImage)>& take) {
    start_decoder();
    for (std::size_t next = 0; next < places.size(); ++next) {
      if (places[next].key > packets_) {
        while (packets_ < places[next].key) {
          if (!read_packet()) return next;
        }
        avcodec_flush_buffers(codec_.get());
      }
      do {
        if (receive_frame() < 0 || frame_->pts > places[next].time) return next;
      } while (frame_->pts != places[next].time);
      take(orientation().turned(picture(places[next].frame)));
    }
    return places.size();
  }

 private:
  static constexpr int kBuffer = 64 * 1024;
  static constexpr int kTurnsOfAll = 360;

  bool is_mp4() const { return std::string_view(format_->iformat->name).starts_with("mov"); }

  /// Returns the number of frames that the headers tell; 0 if they do not. An MP4 file's edit list hides
  /// frames and may repeat others, so its index counts.
  std::int64_t header_frames() const {
    if (!is_mp4() || stream_->nb_frames == 0) return stream_->nb_frames;
    std::int64_t shown = 0;
    for (int i = 0; i < avformat_index_get_entries_count(stream_); ++i)
      shown += (avformat_index_get_entry(stream_, i)->flags & AVINDEX_DISCARD_FRAME) == 0 ? 1 : 0;
    return shown;
  }

  /// Returns whether the frame of the current packet is shown, which an MP4 file's edit list decides.
  bool is_shown() const { return (packet_->flags & AV_PKT_FLAG_DISCARD) == 0; }

  /// Returns whether the stream's packets usually are frames, one each. Others have packets without a frame.
  bool gives_a_frame_per_packet() const {
    constexpr AVCodecID kCodes[] = {AV_CODEC_ID_H264, AV_CODEC_ID_HEVC, AV_CODEC_ID_AV1,
                                    AV_CODEC_ID_VP9,  AV_CODEC_ID_FFV1, AV_CODEC_ID_MJPEG};
    return std::ranges::find(kCodes, stream_->codecpar->codec_id) != std::end(kCodes);
  }

  /// Decodes the next frame, whole or not at all. @return 0, or FFmpeg's error
  int receive_frame() {
    while (true) {
      const int code = avcodec_receive_frame(codec_.get(), frame_.get());
      if (code == AVERROR(EAGAIN)) {
        const int sent = avcodec_send_packet(codec_.get(), read_packet() ? packet_.get() : nullptr);
        if (sent < 0) return sent;
        continue;
      }
      const bool is_whole =
          code < 0 || ((frame_->flags & AV_FRAME_FLAG_CORRUPT) == 0 && frame_->decode_error_flags == 0);
      return is_whole ? code : AVERROR_INVALIDDATA;
    }
  }

  void open() {
    io_ = made(avio_alloc_context(static_cast<unsigned char*>(av_malloc(kBuffer)), kBuffer, 0, this, on_read,
                                  nullptr, on_seek));
    AVFormatContext* format = made(avformat_alloc_context()).release();
    format->pb = io_.get();
    AVDictionary* options = nullptr;
    // Playlists, which are text, name other files and addresses: only containers are read.
    av_dict_set(&options, "format_whitelist",
                "mov,mp4,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,ogg,asf,gif,ivf,h264,hevc,nut,mjpeg", 0);
    av_dict_set(&options, "protocol_whitelist", "none", 0);
    const int code = avformat_open_input(&format, nullptr, nullptr, &options);  // frees `format` if it fails
    av_dict_free(&options);
    if (code < 0) refuse_video(code);
    format_.reset(format);
  }

  /// Reads packets until all streams are known. FFmpeg permits this once.
  void probe() {
    if (const int code = avformat_find_stream_info(format_.get(), nullptr); code < 0) refuse_video(code);
  }

  ImageSize stored_size() const {
    const AVCodecParameters& of = *stream_->codecpar;
    return checked_size({{}, video_.name}, static_cast<std::uint64_t>(std::max(of.width, 0)),
                        static_cast<std::uint64_t>(std::max(of.height, 0)));
  }

  /// Returns how the container turns frames, in quarters; other angles count as none.
  Orientation orientation() const {
    if (video_.exif == ExifRule::ignore) return {};
    const std::uint8_t* matrix = av_stream_get_side_data(stream_, AV_PKT_DATA_DISPLAYMATRIX, nullptr);
    if (matrix == nullptr) return {};
    const double counterclockwise = av_display_rotation_get(reinterpret_cast<const std::int32_t*>(matrix));
    if (!std::isfinite(counterclockwise)) return {};
    const auto clockwise = (kTurnsOfAll - std::lround(counterclockwise)) % kTurnsOfAll;
    return Orientation(clockwise == 90 ? 6 : clockwise == 180 ? 3 : clockwise == 270 ? 8 : 1);
  }

  void start_decoder() {
    stored_size();
    const AVCodec* decoder = avcodec_find_decoder(stream_->codecpar->codec_id);
    if (decoder == nullptr) {
      refuse_input(video_.name, "expected a video in a code that FFmpeg reads, found {}",
                   avcodec_get_name(stream_->codecpar->codec_id));
    }
    codec_ = made(avcodec_alloc_context3(decoder));
    if (const int code = avcodec_parameters_to_context(codec_.get(), stream_->codecpar); code < 0)
      refuse_video(code);
    codec_->thread_count = 1;  // samples are decoded in parallel
    codec_->err_recognition = AV_EF_EXPLODE | AV_EF_CRCCHECK;
    codec_->max_pixels = kMaxPixels;
    if (const int code = avcodec_open2(codec_.get(), decoder, nullptr); code < 0) refuse_video(code);
    frame_ = made(av_frame_alloc());
  }

  /// Reads the stream's next packet. @return whether there is one
  bool read_packet() {
    if (!packet_) packet_ = made(av_packet_alloc());
    while (true) {
      av_packet_unref(packet_.get());
      const int code = av_read_frame(format_.get(), packet_.get());
      if (code == AVERROR_EOF) return false;
      if (code < 0) refuse_video(code);
      if (packet_->stream_index != stream_->index) continue;
      ++packets_;
      return true;
    }
  }

  /// Returns the decoded frame as it is stored.
  RgbImage picture(std::int64_t number) {
    const ImageSize size = stored_size();
    if (frame_->width != size.width || frame_->height != size.height) {
      refuse_input(video_.name, "frame {}: expected {}x{}, the video's size, found {}x{}", number, size.width,
                   size.height, frame_->width, frame_->height);
    }
    scaler_.reset(sws_getCachedContext(scaler_.release(), size.width, size.height,
                                       static_cast<AVPixelFormat>(frame_->format), size.width, size.height,
                                       AV_PIX_FMT_RGB24, SWS_BILINEAR | SWS_ACCURATE_RND | SWS_BITEXACT,
                                       nullptr, nullptr, nullptr));
    if (!scaler_) refuse_frame(number, AVERROR_INVALIDDATA);
    constexpr int kWhole = 1 << 16;
    sws_setColorspaceDetails(scaler_.get(), sws_getCoefficients(frame_->colorspace),
                             frame_->color_range == AVCOL_RANGE_JPEG ? 1 : 0,
                             sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, kWhole, kWhole);
    // FFmpeg writes whole vectors, beyond the ends of rows.
    const Freed<AVFrame> rgb = made(av_frame_alloc());
    rgb->format = AV_PIX_FMT_RGB24;
    rgb->width = size.width;
    rgb->height = size.height;
    if (av_frame_get_buffer(rgb.get(), 0) < 0) throw std::bad_alloc();
    if (sws_scale(scaler_.get(), frame_->data, frame_->linesize, 0, size.height, rgb->data, rgb->linesize) !=
        size.height)
      refuse_frame(number, AVERROR_INVALIDDATA);
    const std::size_t row = 3 * static_cast<std::size_t>(size.width);
    RgbImage image{size, std::vector<std::uint8_t>(row * static_cast<std::size_t>(size.height))};
    av_image_copy_plane(image.pixels.data(), static_cast<int>(row), rgb->data[0], rgb->linesize[0],
                        static_cast<int>(row), size.height);
    return image;
  }

  /// Throws what stopped a read of the file, or FFmpeg's reason.
  [[noreturn]] void refuse_video(int code) const {
    if (failed_) throw Error(failed_->kind(), failed_->message(), video_.name);
    refuse_input(video_.name, "expected a video file that FFmpeg reads, found: {}", problem_of(code));
  }

  [[noreturn]] void refuse_frame(std::int64_t number, int code) const {
    refuse_input(video_.name, "frame {} cannot be decoded: {}", number, problem_of(code));
  }

  static int on_read(void* reader, std::uint8_t* out, int size) {
    VideoReader& self = *static_cast<VideoReader*>(reader);
    const std::uint64_t left = self.video_.size - self.at_;
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(left, static_cast<std::uint64_t>(size)));
    if (count == 0) return AVERROR_EOF;
    try {
      self.video_.file.read(self.video_.offset + self.at_, out, count);
    } catch (const Error& error) {  // may not pass through FFmpeg
      self.failed_ = error;
      return AVERROR(EIO);
    }
    self.at_ += count;
    return static_cast<int>(count);
  }

  static std::int64_t on_seek(void* reader, std::int64_t offset, int whence) {
    VideoReader& self = *static_cast<VideoReader*>(reader);
    const auto size = static_cast<std::int64_t>(self.video_.size);
    if (whence == AVSEEK_SIZE) return size;
    const std::int64_t base = whence == SEEK_CUR   ? static_cast<std::int64_t>(self.at_)
                              : whence == SEEK_END ? size
                                                   : 0;
    if (offset < -base || offset > size - base) return AVERROR(EINVAL);
    self.at_ = static_cast<std::uint64_t>(base + offset);
    return base + offset;
  }

  const VideoFile& video_;
  std::uint64_t at_ = 0;
  std::optional<Error> failed_;
  Freed<AVIOContext> io_;  // outlives format_
  Freed<AVFormatContext> format_;
  AVStream* stream_ = nullptr;
  Freed<AVCodecContext> codec_;
  Freed<AVPacket> packet_;
  std::int64_t packets_ = 0;  ///< that were read
  Freed<AVFrame> frame_;
  Freed<SwsContext> scaler_;
};

}  // namespace

VideoShape video_shape(const VideoFile& video) {
  return VideoReader(video).shape();
}

void decode_video(const VideoFile& video, std::span<const std::int64_t> frames,
                  const std::function<void(RgbImage)>& take) {
  constexpr std::int64_t kSparse = 8;  // of so many frames, one is taken: worth reading all packets first
  std::size_t taken = 0;
  if (!frames.empty() && frames.back() / std::ssize(frames) >= kSparse) {
    std::vector<FramePlace> places;
    try {
      places = VideoReader(video).places_of(frames);
    } catch (const Error&) {  // damage after the last of `frames` does not matter
    }
    if (!places.empty()) taken = VideoReader(video).decode_at(places, take);
  }
  if (taken < frames.size()) VideoReader(video).decode(frames.subspan(taken), take);
}

bool reads_video_files() {
  return true;
}

}  // namespace dflop

#else

namespace dflop {
namespace {

[[noreturn]] void refuse_without_ffmpeg(const VideoFile& video) {
  refuse_input(
      video.name,
      "is a video file, but dflop was built without FFmpeg: install libavformat-dev, libavcodec-dev, "
      "libavutil-dev and libswscale-dev and build again, or name a folder of the video's frames");
}

}  // namespace

VideoShape video_shape(const VideoFile& video) {
  refuse_without_ffmpeg(video);
}

void decode_video(const VideoFile& video, std::span<const std::int64_t>,
                  const std::function<void(RgbImage)>&) {
  refuse_without_ffmpeg(video);
}

bool reads_video_files() {
  return false;
}

}  // namespace dflop

#endif
