import os
import unittest

from harness import counts, processes


class Counts(unittest.TestCase):
    def test_line__is_read_as_it_was_printed(self):
        made = counts.Counts()
        made.add("passed", 3)
        made.add("skipped")
        self.assertEqual(str(made), "3 passed, 0 failed, 1 skipped")
        self.assertEqual(counts.parse(f"{made}, 7 left to --all\n"), made)

    def test_line__without_skipped__has_none(self):
        self.assertEqual(counts.parse("2 passed, 1 failed\n"), {"passed": 2, "failed": 1, "skipped": 0})

    def test_other_line__has_no_counts(self):
        for line in ("ok: 2 passed, 1 failed\n", "2 passed\n", "test result: ok. 2 passed; 0 failed\n"):
            self.assertIsNone(counts.parse(line))

    def test_exit_code__is_1_when_one_failed_or_none_passed(self):
        for passed, failed, code in ((1, 0, 0), (1, 1, 1), (0, 0, 1)):
            self.assertEqual(counts.Counts({"passed": passed, "failed": failed}).exit_code(), code)


class Processes(unittest.TestCase):
    def test_own_process__is_found(self):
        own = os.getpid()
        self.assertIn(own, processes.find(lambda pid: pid == own))
        self.assertEqual(processes.parent(own), os.getppid())
        self.assertEqual(int(processes.stat(own)[3]), os.getsid(0))

    def test_ended_process__has_nothing(self):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        self.assertEqual((processes.stat(pid), processes.rank(pid), processes.words(pid), processes.parent(pid)),
                         ([], None, [""], None))
        self.assertEqual(processes.find(lambda other: other == pid), {})
