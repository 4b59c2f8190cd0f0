import faulthandler
import os
import signal
import threading
import unittest
import unittest.mock

from harness import schedule
from harness.schedule import Room, Test


def setUpModule():
    faulthandler.dump_traceback_later(120, exit=True)


def tearDownModule():
    faulthandler.cancel_dump_traceback_later()


def make(name, processors=1, body=lambda: None, **more):
    return Test(name, body, processors, memory=1, **more)


def run(tests, room):
    """Runs tests and returns their ends by name."""
    ends = {}
    schedule.run(tests, room, lambda names: None, lambda ended: ends.__setitem__(ended.test.name, ended))
    return ends


class Picking(unittest.TestCase):
    room = Room(processors=2, memory=100, jobs=5)

    def picked(self, waiting, running):
        found = schedule.pick(waiting, running, self.room)
        return None if found is None else waiting[found].name

    def test_computing__processors_in_use__is_not_picked(self):
        self.assertIsNone(self.picked([make("wide", 2)], [make("a", 1)]))
        self.assertEqual(self.picked([make("narrow", 1)], [make("a", 1)]), "narrow")

    def test_computing__never_overtakes_computing(self):
        self.assertIsNone(self.picked([make("wide", 2), make("narrow", 1)], [make("a", 1)]))

    def test_waiting__overtakes_computing(self):
        self.assertEqual(self.picked([make("wide", 2), make("waits", 0)], [make("a", 1)]), "waits")

    def test_waiting__leaves_places_for_computing(self):
        waits = [make(str(i), 0) for i in range(3)]
        self.assertIsNone(self.picked([make("waits", 0)], waits))
        self.assertEqual(self.picked([make("wide", 2)], waits), "wide")

    def test_wider_than_machine__runs_without_other_computing(self):
        self.assertEqual(self.picked([make("wide", 64)], [make("waits", 0)]), "wide")
        self.assertIsNone(self.picked([make("wide", 64)], [make("a", 1)]))

    def test_alone__shares_with_none(self):
        self.assertIsNone(self.picked([make("alone", alone=True)], [make("waits", 0)]))
        self.assertIsNone(self.picked([make("waits", 0)], [make("alone", alone=True)]))
        self.assertEqual(self.picked([make("alone", alone=True)], []), "alone")

    def test_computing__idle_processors__is_picked_beside_others(self):
        waiting, running = [make("wide", 2)], [make("a", 2)]
        self.assertEqual(schedule.pick(waiting, running, self.room, idle=1.5), 0)
        self.assertEqual(schedule.pick(waiting, running, self.room, idle=schedule.IDLE_ENOUGH), 0)
        self.assertIsNone(schedule.pick(waiting, running, self.room, idle=schedule.IDLE_ENOUGH - 0.01))
        self.assertIsNone(schedule.pick([make("alone", alone=True)], running, self.room, idle=1.5))

    def test_memory_in_use__is_not_picked(self):
        large = Test("large", None, 1, memory=200)
        self.assertIsNone(self.picked([large], [make("a", 1)]))
        self.assertEqual(self.picked([large], []), "large")


class Idleness(unittest.TestCase):
    def test_idle__whole_moment__is_the_rate(self):
        seconds = iter([10.0, 10.0 + 1e6])
        meter = schedule.IdleMeter(lambda: next(seconds))
        self.assertEqual(meter.idle(), 0.0)  # the interval has not ended
        meter._since -= 1e6
        self.assertAlmostEqual(meter.idle(), 1.0, places=3)

    def test_idle_seconds__of_this_machine__never_fall(self):
        processors = os.sched_getaffinity(0)
        before = schedule._idle_seconds(processors)
        self.assertGreater(before, 0)
        self.assertGreaterEqual(schedule._idle_seconds(processors), before)
        self.assertEqual(schedule._idle_seconds(set()), 0)


class Ordering(unittest.TestCase):
    def test_order__same_seed__is_the_same(self):
        tests = [make(str(i)) for i in range(20)]
        names = [[test.name for test in schedule.order(given, seed)] for given, seed in
                 ((tests, 1), (tests[::-1], 1), (tests, 2))]
        self.assertEqual(names[0], names[1])
        self.assertNotEqual(names[0], names[2])

    def test_order__alone_is_last(self):
        tests = [make("alone", 2, alone=True), make("a", 1), make("waits", 0)]
        self.assertEqual(schedule.order(tests, 7)[-1].name, "alone")


class Running(unittest.TestCase):
    def test_run__outcomes_come_back(self):
        ends = run([make(str(i), body=lambda i=i: {"number": i}) for i in range(5)], Room(2, 100, 4))
        self.assertEqual({name: end.outcome for name, end in ends.items()}, {str(i): {"number": i} for i in range(5)})

    def test_run__process_that_dies__is_told(self):
        ends = run([make("dies", body=lambda: os.kill(os.getpid(), signal.SIGKILL)), make("lives", body=lambda: 3)],
                   Room(1, 100, 2))
        self.assertIn("-9", ends["dies"].trouble)
        self.assertEqual(ends["lives"].outcome, 3)

    def test_run__exception__is_kept(self):
        end = run([make("breaks", body=lambda: 1 // 0)], Room(1, 100, 1))["breaks"]
        self.assertIsNotNone(end.trouble)
        self.assertIn("ZeroDivisionError", end.said)

    def test_run__folders_are_apart_and_gone(self):
        ends = run([make(str(i), body=lambda: os.environ["TMPDIR"]) for i in range(3)], Room(2, 100, 4))
        folders = {end.outcome for end in ends.values()}
        self.assertEqual(len(folders), 3)
        self.assertFalse(any(map(os.path.exists, folders)))

    def test_run__waiting_tests_meet_beside_computing(self):
        """Two tests that wait for each other, and one that computes until both have met."""
        first, second = os.pipe(), os.pipe()

        def meet(ours, theirs):
            os.write(theirs[1], b"x")
            return os.read(ours[0], 1).decode()

        ends = run([make("computes", 2, body=lambda: meet(*[os.pipe()] * 2)), make("a", 0, body=lambda: meet(first, second)),
                    make("b", 0, body=lambda: meet(second, first))], Room(2, 100, 4))
        self.assertEqual([ends[name].outcome for name in "ab"], ["x", "x"])

    def interrupted(self, body):
        """Runs one test and interrupts the run when `body` has called its argument."""
        is_recorded, begun = threading.Event(), os.pipe()

        def interrupt():
            is_recorded.wait()
            os.read(begun[0], 1)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with self.assertRaises(KeyboardInterrupt):
            schedule.run([make("waits", 0, body=lambda: body(lambda: os.write(begun[1], b"x")))], Room(1, 100, 2),
                         lambda names: is_recorded.set(), lambda ended: None)
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_run__interrupted__ends_its_tests(self):
        def body(ready):
            ready()
            while True:
                signal.pause()

        self.interrupted(body)

    def test_run__interrupted__repeats_its_signal(self):
        """The first signal is without effect, like one that arrives just before a blocking call."""
        def body(ready):
            end = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, end))
            ready()
            while True:
                signal.pause()

        self.interrupted(body)

    def test_run__interrupted__kills_a_test_that_does_not_end(self):
        def body(ready):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            ready()
            while True:
                signal.pause()

        with unittest.mock.patch.object(schedule, "SECONDS_TO_END", 0.1):
            self.interrupted(body)
