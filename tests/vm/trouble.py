"""What stands in the way of the virtual machine, and what to do about it."""


class Trouble(Exception):
    def __init__(self, cause, remedy):
        super().__init__(cause)
        self.cause, self.remedy = cause, remedy

    def __str__(self):
        return f"{self.cause}\n  remedy: {self.remedy}"
