"""Tests that the catalogue is complete, and what is reported for a trial."""

import re
import types
import unittest

import table
import trial
from program import HERE, Program, Source
from catalogue import families

WORDS = re.compile(r"\{(\w+)\}")
GIVEN = {"python", "bin", "site", "source", "work"}


def program(name, **options):
    return Program(name, "trl", "hugging_face", ("{python}", "train.py"), **options)


def tried(one, recorded=(2, 4), counted=(2, 4), is_equal=True, other=0.0, bare=0.0, **options):
    peaks = (trial.Peaks(0, recorded, counted, is_equal, other, bare),)
    return trial.Trial(one, "1.0", 3, peaks=peaks, **{"exit_code": 0} | options)


class Catalogue(unittest.TestCase):
    def setUp(self):
        self.programs = [one for family in families().values() for one in family]

    def test_names_are_distinct(self):
        names = [one.name for one in self.programs]
        self.assertEqual(len(names), len(set(names)))

    def test_packages_are_pinned(self):
        for one in self.programs:
            path = HERE / "environments" / f"{one.environment}.txt"
            for line in path.read_text().split("\n"):
                self.assertRegex(line, r"^([\w.-]+==[\w.+-]+)?$", path.name)

    def test_words_in_braces_are_known(self):
        for one in self.programs:
            self.assertEqual([name for name in one.inputs
                              if not (HERE / "inputs" / f"{name}.py").exists()], [], one.name)
            used = set(WORDS.findall(" ".join([*one.command, *one.variables.values(), *one.links.values()])))
            self.assertLessEqual(used, GIVEN | set(one.inputs), one.name)
            self.assertLessEqual("source" in used, one.source is not None, one.name)

    def test_sources_are_pinned(self):
        for one in self.programs:
            if one.source:
                self.assertRegex(one.source.commit, "^[0-9a-f]{40}$", one.name)


class Judgement(unittest.TestCase):
    def test_equal(self):
        self.assertTrue(tried(program("a")).is_equal)
        self.assertFalse(tried(program("a"), counted=(2, 5), is_equal=False).is_equal)
        self.assertFalse(tried(program("a"), exit_code=1).is_equal)
        self.assertFalse(trial.Trial(program("a"), exit_code=0).is_equal)

    def test_faults(self):
        self.assertFalse(tried(program("a")).is_fault)
        self.assertTrue(tried(program("a"), exit_code=1).is_fault)
        self.assertFalse(tried(program("a", explained="it fails on a GPU, too"), exit_code=1).is_fault)


    def test_names(self):
        self.assertFalse(tried(program("a"), other=0.02, bare=0.01).is_fault)
        self.assertTrue(tried(program("a"), other=0.021).is_fault)
        self.assertTrue(tried(program("a"), bare=0.011).is_fault)
        explained = tried(program("a", unnamed="its loader is C++"), bare=0.5)
        self.assertFalse(explained.is_fault)
        self.assertIn("50.0% has no line: its loader is C++", table.line_of(explained))
        self.assertNotIn("no line", table.line_of(tried(program("a"))))

    def test_part_without_line(self):
        places = [{"bytes": 3, "label": "a.py:1 f"}, {"bytes": 1, "label": ""}]
        self.assertEqual(trial.without_line(places), 0.25)
        self.assertEqual(trial.without_line([]), 0)


class Table(unittest.TestCase):
    def setUp(self):
        self.one = program("a-sft")
        self.other = program("b-dpo", source=Source("https://github.com/owner/name", "0" * 40))
        self.page = types.SimpleNamespace(text="head\n" + table.BEGIN + table.END + "foot\n")
        self.page.read_text = lambda: self.page.text
        self.page.write_text = lambda text: setattr(self.page, "text", text)
        self.kept, table.PAGE = table.PAGE, self.page

    def tearDown(self):
        table.PAGE = self.kept

    def test_rows_of_others_stay(self):
        catalogue = [self.one, self.other]
        table.write([tried(self.one, doubts=("a | b",))], catalogue)
        table.write([tried(self.other, exit_code=1, failure="no verdict: killed")], catalogue)
        self.assertIn("1 of 2 programs of 1 libraries are equal", self.page.text)
        self.assertIn("| a-sft | trl 1.0 | 3 | 2 / 4 | equal | a \\| b | 0 |", self.page.text)
        table.write([tried(self.other)], catalogue)
        self.assertIn("2 of 2 programs", self.page.text)
        self.assertIn("- b-dpo (https://github.com/owner/name at 000000000000): `", self.page.text)
        self.assertTrue(self.page.text.endswith(table.END + "foot\n"))
        table.write([], [self.other])
        self.assertNotIn("a-sft", self.page.text)


if __name__ == "__main__":
    unittest.main()
