"""The bindings of the standard: printed by the package pympistandard, which has the MPI Forum's data, and parsed."""

import dataclasses
import json
import os
import re

from harness import packages

from fortran import sources

REQUIREMENT = "pympistandard==0.2.0"

# Runs in the virtual environment of the package. Expressions without a Fortran form are None.
PRINT = """
import json, pympistandard
pympistandard.use_api_version()
def text(make):
    found = make()
    return None if found is None else str(found)
def forms(symbol):
    large = (lambda: symbol.express.embiggen.f08) if symbol.has_embiggenment() else lambda: None
    return {"f08": text(lambda: symbol.express.f08), "f90": text(lambda: symbol.express.f90), "large": text(large)}
print(json.dumps([[forms(symbol) for symbol in kind.values()]
                  for kind in (pympistandard.PROCEDURES, pympistandard.CALLBACKS)]))
"""


def bindings():
    """Returns the procedures and the callbacks; each is a list of dictionaries {form: Procedure}, with the forms `f08`,
    `large` and `f90` that it has. Raises OSError if the package is not available."""
    folder = packages.python(REQUIREMENT)
    printed = packages.run([os.path.join(folder, "bin", "python"), "-c", PRINT])
    procedures, callbacks = json.loads(printed)
    return [parse(forms) for forms in procedures], [parse(forms) for forms in callbacks]


def parse(forms):
    return {form: (f90 if form == "f90" else f08)(text) for form, text in forms.items() if text is not None}


def f08(text):
    """Parses a binding of `mpi_f08`."""
    lines = [line.strip() for line in text.splitlines() if line.strip() != "ABSTRACT INTERFACE"]
    procedure, names = head(lines[0])
    declared = {}
    for line in lines[1:]:
        if not line.startswith("USE"):
            declared.update((argument.name, argument) for argument in sources.declarations(line))
    procedure.arguments = [declared[name] for name in names]
    return procedure


def f90(text):
    """Parses a binding of module `mpi`: `INTEGER COUNT, IERROR`."""
    lines = [line.strip() for line in text.splitlines()]
    procedure, names = head(lines[0])
    declared = {}
    for line in lines[1:]:
        kind, right = re.match(r"([^ ]+(?: PRECISION)?) (.*)", line).groups()
        kind = {"<type>": "any", "character*(*)": "character(len=*)"}.get(kind.lower(), kind)
        for argument in sources.declarations(f"{kind} :: {right}"):
            # A choice buffer is an assumed-size array of the standard, and a scalar without checks of ours.
            extent = "" if argument.type == "any" else argument.extent
            declared[argument.name] = dataclasses.replace(argument, extent=extent)
    procedure.arguments = [declared[name] for name in names]
    return procedure


def head(line):
    """Returns a procedure without arguments, and their names."""
    result, name, names = re.match(r"(.*?)\b(\w+)\(([^()]*)\)$", line).groups()
    return sources.Procedure(name, sources.normal(result), []), sources.split(names) if names else []
