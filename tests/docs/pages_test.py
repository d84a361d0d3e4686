"""Tests what the rules of pages.py let through and what they do not."""

import unittest

import pages

STORY = """# A page

```json file=a.json
{"a": 1}
```

```console exit=3
$ first --flag \\
    --more
out
$ cat <<END
> a
> END
a
...
```

```console gpu
$ second
```
"""


class Comparison(unittest.TestCase):
    def is_as_shown(self, shown, printed):
        return pages.is_as_shown(shown.split("\n"), printed.split("\n"))

    def test_equal_lines(self):
        self.assertTrue(self.is_as_shown("a\nb", "a\nb"))
        self.assertFalse(self.is_as_shown("a\nb", "a"))
        self.assertFalse(self.is_as_shown("a", "a\nb"))
        self.assertFalse(self.is_as_shown("peak 1.00 GiB", "peak 1.01 GiB"))

    def test_dots(self):
        self.assertTrue(self.is_as_shown("a\n...\nc", "a\nb\nb\nc"))
        self.assertTrue(self.is_as_shown("a\n...", "a"))
        self.assertFalse(self.is_as_shown("a\n...\nc", "a\nb\nb"))
        self.assertFalse(self.is_as_shown("...\nc", "c\nd"))
        self.assertTrue(self.is_as_shown("run: runs/a-...", "run: runs/a-2026"))
        self.assertFalse(self.is_as_shown("run: runs/a-...", "run: runs/b-2026"))
        self.assertFalse(self.is_as_shown("a.b...", "axb"))

    def test_times(self):
        self.assertTrue(self.is_as_shown("after 0.1 s, 9 images/s", "after 12.25 s, 10 images/s"))
        self.assertTrue(self.is_as_shown("left  0:43", "left 10:01"))
        self.assertFalse(self.is_as_shown("5 steps", "6 steps"))
        self.assertFalse(self.is_as_shown("5 ms", "5 s"))


class Reading(unittest.TestCase):
    def test_steps(self):
        page = pages.read_page(STORY)
        self.assertEqual(page.faults, [])
        self.assertEqual(page.steps[0], pages.File("a.json", '{"a": 1}\n'))
        first, here, second = page.commands()
        self.assertEqual(first.text, "first --flag \\\n    --more")
        self.assertEqual((first.shown, first.exit_code), (["out"], 3))
        self.assertEqual((here.text, here.shown), ("cat <<END\na\nEND", ["a", "..."]))
        self.assertEqual((here.line, here.last_line), (11, 15))
        self.assertEqual(second.reason_not_to_run, "gpu")
        self.assertIsNone(first.reason_not_to_run)

    def test_copies(self):
        page = pages.read_page("<!-- copies tests/a.py -->\n")
        self.assertEqual(page.steps, [pages.Copy("tests/a.py")])

    def test_faults(self):
        for text in (
            "```sh\nmake\n```\n",
            "```console\nmake\n```\n",
            "```console someday\n$ make\n```\n",
            "words\n\n    $ make\n",
            "```console exit=x\n$ make\n```\n",
            "```console\n$ make\n",
        ):
            self.assertEqual(len(pages.read_page(text).faults), 1, text)


if __name__ == "__main__":
    unittest.main()
