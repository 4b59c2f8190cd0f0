import contextlib
import importlib.machinery
import importlib.util
import io
import os
import signal
import subprocess
import tempfile
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = os.path.join(TESTS, "parts")


def load():
    loader = importlib.machinery.SourceFileLoader("parts", PARTS)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("parts", loader))
    loader.exec_module(module)
    return module


class Parts(unittest.TestCase):
    def test_part__hangs__is_ended_and_fails(self):
        command = "sh -c 'sleep 600; true'"
        budget = {"uncounted": [], "plain_cargo": [], "seconds": {command: 0.1}}
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            part = load().Part(command, os.path.join(folder, "part"), budget)
            part.run(False)
        self.assertEqual(part.code, 124)
        self.assertIn("ended after 0.3", part.failures[0][0])

    def test_part__that_ignores_the_signal__is_killed(self):
        command = "sh -c 'trap : TERM; while :; do sleep 0.01; done'"
        budget = {"uncounted": [], "plain_cargo": [], "seconds": {command: 0.1}}
        parts = load()
        parts.KILLED_AFTER = 0.1
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            part = parts.Part(command, os.path.join(folder, "part"), budget)
            part.run(False)
        self.assertIn("ended after 0.3", part.failures[0][0])

    def test_parts__terminated__ends_its_parts(self):
        # The pipe ends when the last process that writes to it has ended.
        command = [PARTS, "sh -c 'echo begun; sleep 600; true'"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            self.assertIn("begun\n", iter(process.stdout.readline, ""))
            process.send_signal(signal.SIGTERM)
            process.communicate()
        self.assertEqual(process.returncode, 143)
