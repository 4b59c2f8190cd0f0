! Checks that report where they fail. Included after `contains` of a program with variables `rank`, `ranks`, `failures`
! and `ierr`.
#define CHECK(condition) call check(condition, __LINE__)
#define SAME(actual, expected) call same(int(actual, 8), int(expected, 8), __LINE__)
#define CLASS(expected) call class_is(ierr, expected, __LINE__)
