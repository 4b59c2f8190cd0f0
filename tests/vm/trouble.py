"""An error that prevents the use of the virtual machine, with its remedy."""


class Trouble(Exception):
    def __init__(self, cause, remedy):
        super().__init__(cause)
        self.cause, self.remedy = cause, remedy

    def __str__(self):
        return f"{self.cause}\n  remedy: {self.remedy}"
