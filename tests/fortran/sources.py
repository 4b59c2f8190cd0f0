"""Parser of the generated Fortran modules: interfaces in a form that can be compared."""

import dataclasses
import re

# Directives for an argument without checks; each compiler reads one of them.
UNCHECKED = {
    "gcc": r"!GCC\$ ATTRIBUTES NO_ARG_CHECK :: (.*)",
    "dir": r"!DIR\$ IGNORE_TKR (.*)",
    "dec": r"!DEC\$ ATTRIBUTES NO_ARG_CHECK :: (.*)",
}


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument; texts are in lower case without blanks. The type `any` is a choice buffer without a descriptor."""
    name: str
    type: str
    extent: str = ""
    intent: str = ""
    attributes: frozenset = frozenset()

    def __str__(self):
        words = [self.type, *([f"intent({self.intent})"] if self.intent else []), *sorted(self.attributes)]
        return f"{', '.join(words)} :: {self.name}" + (f"({self.extent})" if self.extent else "")


@dataclasses.dataclass
class Procedure:
    """An interface body. `generic`: name of the interface block, or None; `symbol`: binding label, or None."""
    name: str
    result: str
    arguments: list
    generic: str = None
    symbol: str = None
    is_abstract: bool = False


def parse(text):
    """Returns the procedures of a module, except those of its operators."""
    procedures, generic, is_abstract, body = [], None, False, None
    for line in statements(text):
        word = line.lower()
        if body is not None:
            if re.match(r"end (subroutine|function)\b", word):
                procedures.append(procedure(body, generic, is_abstract))
                body = None
            else:
                body.append(line)
        elif match := re.match(r"(abstract )?interface\b ?(.*)$", line, re.IGNORECASE):
            is_abstract, generic = bool(match[1]), match[2] or None
        elif re.search(r"\b(subroutine|function) \w+\(", line):
            body = [line]
    return [one for one in procedures if not (one.generic or "").startswith("operator")]


def statements(text):
    """Statements and directives, without continuations, comments and indentation."""
    whole = re.sub(r" *&\n *", " ", text)
    for line in whole.splitlines():
        line = line.strip()
        if line and (not line.startswith("!") or re.match(r"!(GCC|DIR|DEC)\$", line)):
            yield line


def procedure(body, generic, is_abstract):
    """Builds a procedure from its statements without the last one."""
    head = re.match(r'(.*?)\b(subroutine|function) (\w+)\((.*?)\)(?: bind\(C,name="(\w+)"\))?$', body[0])
    result, kind, name, names, symbol = head.groups()
    names = [one.strip() for one in names.split(",")] if names else []
    unchecked = {key: set() for key in UNCHECKED}
    declared = {}
    for line in body[1:]:
        if line.startswith("!"):
            for key, pattern in UNCHECKED.items():
                if match := re.match(pattern, line):
                    unchecked[key] |= set(match[1].split(", "))
        elif line != "import":
            for argument in declarations(line):
                assert argument.name not in declared, f"{name}: {argument.name} is declared twice"
                declared[argument.name] = argument
    assert set(declared) == {one.lower() for one in names}, f"{name}: {sorted(declared)} instead of {names}"
    assert unchecked["gcc"] == unchecked["dir"] == unchecked["dec"], f"{name}: different directives"
    for one in unchecked["gcc"]:
        declared[one.lower()] = any_type(declared[one.lower()])
    arguments = [declared[one.lower()] for one in names]
    return Procedure(name, normal(result), arguments, generic, symbol, is_abstract)


def any_type(argument):
    """The argument as a choice buffer without a descriptor. It is a scalar of any type."""
    assert argument.type == "real" and not argument.extent, argument
    return dataclasses.replace(argument, type="any")


def declarations(line):
    """Returns the arguments that a declaration declares."""
    left, right = line.split("::")
    kind, *attributes = split(left)
    if attributes and attributes[0] == "dimension(..)":
        kind += "," + attributes.pop(0)
    intents = [one[len("intent("):-1] for one in attributes if one.startswith("intent(")]
    others = frozenset(one for one in attributes if not one.startswith("intent("))
    for declarator in split(right):
        name, _, extent = declarator.partition("(")
        yield Argument(name, kind, extent.rstrip(")"), intents[0] if intents else "", others)


def split(text):
    """Splits at the commas outside parentheses."""
    return re.split(r",(?![^()]*\))", normal(text))


def normal(text):
    return re.sub(r"\s", "", text).lower()
