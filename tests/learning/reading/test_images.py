"""Folders of images, and what is said of those that cannot be read."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from pdlrecover import read_data
from pdlrecover.errors import DataError
from pdlrecover.learning.reading import images
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.images import read_images
from pdlrecover.learning.reading.source import Source

RNG = np.random.default_rng(4)
GREY = RNG.integers(0, 256, (6, 5), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
ORIENTATION = 0x0112


def put(folder, name, picture, **how):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    image.save(path, **how)


def read(folder, shape=(3, 6, 5), **source):
    return read_images(folder, Source(folder=".", **source), Agreed(shape=shape, outputs=2))


def test_a_sample_is_its_pixels_over_255_and_its_class_the_folders_name(tmp_path):
    put(tmp_path, "cat/b.png", COLOUR)
    put(tmp_path, "cat/a.bmp", COLOUR[::-1])
    put(tmp_path, "ant/z.tiff", COLOUR[:, ::-1])
    x, y = read_data(tmp_path)
    assert list(y) == ["ant", "cat", "cat"]
    expected = np.stack([COLOUR[:, ::-1], COLOUR[::-1], COLOUR]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(x, np.divide(expected, 255, dtype=np.float32))


@pytest.mark.parametrize("shape", [(1, 6, 5), (6, 5)])
def test_the_federations_shape_decides_on_channels(tmp_path, shape):
    put(tmp_path, "0/a.png", GREY)
    found = read(tmp_path, shape)
    np.testing.assert_array_equal(found.samples[0], (GREY / 255).astype(np.float32).reshape(shape))
    assert found.labels.tolist() == [0]


def test_colours_are_converted_where_nothing_is_lost_by_it(tmp_path):
    few = Image.fromarray(COLOUR // 128 * 255)
    put(tmp_path, "a/1.png", few)
    put(tmp_path, "a/2.png", few.quantize(8))
    put(tmp_path, "a/3.png", GREY)
    put(tmp_path, "a/4.png", Image.fromarray(GREY > 127))
    found = read(tmp_path).samples
    np.testing.assert_array_equal(found[0], found[1])
    for channel in range(3):
        np.testing.assert_array_equal(found[2, channel], (GREY / 255).astype(np.float32))
        np.testing.assert_array_equal(found[3, channel], GREY > 127)


def test_colours_that_would_be_lost_are_converted_only_if_that_is_said(tmp_path):
    put(tmp_path, "a/1.png", COLOUR)
    with pytest.raises(DataError, match=r'a/1\.png has the colour mode RGB, and .*mode = "L"'):
        read(tmp_path, (1, 6, 5))
    found = read(tmp_path, (1, 6, 5), mode="L").samples[0, 0]
    grey = COLOUR @ np.array([0.299, 0.587, 0.114])
    assert np.abs(found * 255 - grey).max() <= 1
    put(tmp_path, "a/1.png", Image.fromarray(COLOUR).convert("RGBA"))
    with pytest.raises(DataError, match=r'colour mode RGBA, and samples are RGB.*mode = "RGB"'):
        read(tmp_path)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_what_exif_says_of_the_orientation_is_applied(tmp_path, orientation):
    turns = {
        1: lambda a: a, 2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud,
        5: np.transpose, 6: np.rot90, 7: lambda a: np.rot90(a, 2).T, 8: lambda a: np.rot90(a, 3),
    }  # fmt: skip
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    put(tmp_path, "a/1.png", np.ascontiguousarray(turns[orientation](GREY)), exif=exif)
    np.testing.assert_array_equal(
        read(tmp_path, (6, 5)).samples[0], (GREY / 255).astype(np.float32)
    )


def test_images_of_another_size_are_scaled_only_if_that_is_said(tmp_path):
    put(tmp_path, "a/1.png", GREY)
    put(tmp_path, "b/2.png", np.full((12, 10), 51, np.uint8))
    with pytest.raises(DataError, match=r"b/2\.png has 10 × 12 pixels .*have 5 × 6.*resize = true"):
        read(tmp_path, (6, 5))
    with pytest.raises(DataError, match=r"b/2\.png has 10 × 12 pixels"):
        read_data(tmp_path)
    found = read(tmp_path, (6, 5), resize=True).samples
    np.testing.assert_array_equal(found[1], np.full((6, 5), 51 / 255, np.float32))
    np.testing.assert_array_equal(read_data(tmp_path, shape=(6, 5), resize=True)[0], found)


def bomb(side):
    """Return a PNG of a few bytes that says that it has side² pixels."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8193, 12_000, 60_000])
def test_a_picture_that_is_too_large_is_not_decoded(tmp_path, side):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bomb.png").write_bytes(bomb(side))
    with pytest.raises(DataError, match=r"a/bomb\.png has more than 67,108,864 pixels and is not"):
        read(tmp_path, resize=True)


def several():
    file = io.BytesIO()
    pages = [Image.fromarray(GREY), Image.fromarray(GREY[::-1])]
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:])
    return file.getvalue()


def deep():
    file = io.BytesIO()
    Image.fromarray(GREY.astype(np.uint16) * 257).save(file, "PNG")
    return file.getvalue()


def truncated():
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (60, 50), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()[:900]


def without_a_size():
    """Return a TIFF of two pages, of which the second one's width has another tag."""
    content = several()
    place = content.rindex(b"\x00\x01\x04\x00\x01\x00\x00\x00\x05")
    return content[:place] + b"\x00\xf0" + content[place + 2 :]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a/notes.txt", b"no picture", r"a/notes\.txt is no image in PNG, .* or WEBP; convert it"),
        ("a/x.png", b"", r"a/x\.png is no image"),
        ("a/x.png", truncated(), r"a/x\.png is damaged: "),
        ("a/x.tiff", several(), r"^[^ ]*a/x\.tiff has several pictures; keep one in each file$"),
        ("a/x.png", deep(), r"^[^ ]*a/x\.png has the colour mode I;16, which is not 8 bits"),
        ("a/x.tiff", without_a_size(), r"a/x\.tiff is damaged: Missing dimensions; replace it"),
        ("x.png", b"", r"x\.png stands in .* itself, and an image's class"),
        ("a/more/x.png", b"", "is a folder within that of a class"),
        ("x.npy", b"", r"has arrays \(x\.npy\) and no images"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_its_file(tmp_path, name, content, said):
    put(tmp_path, "0/first.png", GREY)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        read(tmp_path, (6, 5))


def test_folders_whose_names_are_no_short_numbers_are_named_classes(tmp_path):
    for names, labels in (({"7", "10"}, [10, 7]), ({"7", "9" * 25}, ["7", "9" * 25])):
        place = tmp_path / max(names)
        for name in names:
            put(place, f"{name}/1.png", GREY)
        assert list(read(place, (6, 5)).labels) == labels


def test_what_systems_leave_in_folders_is_passed_over(tmp_path):
    put(tmp_path, "a/1.png", GREY)
    for name in (".DS_Store", "a/Thumbs.db", "a/.hidden", "desktop.ini"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    assert len(read(tmp_path, (6, 5)).labels) == 1


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no sub-folder of .* has an image"):
        read(tmp_path)
    with pytest.raises(DataError, match="there is no folder"):
        read(tmp_path / "gone")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="is a file; name a folder with one sub-folder"):
        read(tmp_path / "file")


def test_shapes_that_are_no_images_and_modes_that_do_not_fit_are_refused(tmp_path):
    put(tmp_path, "a/1.png", GREY)
    for shape in ((30,), (2, 6, 5), (1, 1, 6, 5)):
        with pytest.raises(
            DataError, match=r"images have .channels, height, width. with 1, 3 or 4"
        ):
            read(tmp_path, shape)
    with pytest.raises(DataError, match=r"mode = 'RGB' has 3 channels, and the .* samples have 1"):
        read(tmp_path, (1, 6, 5), mode="RGB")


def test_only_few_formats_are_looked_at():
    assert images.FORMATS == ("PNG", "JPEG", "BMP", "TIFF", "WEBP")
    file = io.BytesIO()
    Image.fromarray(GREY).save(file, "GIF")
    with pytest.raises(DataError, match="is no image in"):
        images.opened(file.getvalue(), "x.gif")
