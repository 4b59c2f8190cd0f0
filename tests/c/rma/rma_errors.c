/* test: ranks=1,2,3,4 mistakes=yes
   Wrong calls return the class of the standard, have no effect, and name a remedy. */
#include "rma_check.h"

static int contains(const char *part)
{
    /* The last error of a class is found by its code. */
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(MPI_ERR_RMA_RANGE, text, &length);
    return strstr(text, part) != NULL;
}

static void test_ranges(int kind)
{
    struct window w = make_window(kind, 100, 4);
    long value = 1, old;
    int last = ranks - 1;
    MPI_Aint at = place(&w, last, 96, 4), before = is_dynamic(kind) ? MPI_ERR_RMA_RANGE : MPI_ERR_DISP;
    MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN);
    OK(MPI_Win_lock_all(0, w.win));
    CLASS(MPI_Put(&value, 1, MPI_LONG, last, at, 1, MPI_LONG, w.win), MPI_ERR_RMA_RANGE);
    CHECK(contains("8 bytes"));
    CHECK(is_dynamic(kind) || (contains("at byte 96") && contains("100 bytes")));
    CLASS(MPI_Get(&value, 1, MPI_LONG, last, at, 1, MPI_LONG, w.win), MPI_ERR_RMA_RANGE);
    CLASS(MPI_Accumulate(&value, 1, MPI_LONG, last, at, 1, MPI_LONG, MPI_SUM, w.win), MPI_ERR_RMA_RANGE);
    CLASS(MPI_Fetch_and_op(&value, &old, MPI_LONG, last, at, MPI_SUM, w.win), MPI_ERR_RMA_RANGE);
    CLASS(MPI_Compare_and_swap(&value, &value, &old, MPI_LONG, last, at, w.win), MPI_ERR_RMA_RANGE);
    CLASS(MPI_Put(&value, 1, MPI_INT, last, (MPI_Aint)1 << 62, 1, MPI_INT, w.win), MPI_ERR_RMA_RANGE);
    CLASS(MPI_Put(&value, 1, MPI_INT, last, -1, 1, MPI_INT, w.win), (int)before);
    MPI_Datatype back;
    MPI_Type_create_hvector(2, 1, -200, MPI_INT, &back);
    MPI_Type_commit(&back);
    CLASS(MPI_Get(&value, 2, MPI_INT, last, place(&w, last, 4, 4), 1, back, w.win), MPI_ERR_RMA_RANGE);
    MPI_Type_free(&back);
    OK(MPI_Put(&value, 1, MPI_INT, last, at, 1, MPI_INT, w.win));
    OK(MPI_Put(&value, 0, MPI_INT, last, at, 0, MPI_INT, w.win));
    OK(MPI_Win_unlock_all(w.win));
    free_window(&w);
}

static void test_arguments(void)
{
    struct window w = make_window(ALLOCATED, 64, 1);
    int value = 1, old, last = ranks - 1;
    double real = 1;
    MPI_Datatype raw;
    MPI_Op own;
    MPI_Type_contiguous(2, MPI_INT, &raw);
    MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN);
    OK(MPI_Win_fence(0, w.win));
    CLASS(MPI_Put(&value, 1, MPI_INT, ranks, 0, 1, MPI_INT, w.win), MPI_ERR_RANK);
    CLASS(MPI_Put(&value, 1, MPI_INT, -7, 0, 1, MPI_INT, w.win), MPI_ERR_RANK);
    CLASS(MPI_Put(&value, -1, MPI_INT, last, 0, -1, MPI_INT, w.win), MPI_ERR_COUNT);
    CLASS(MPI_Put(&value, 1, raw, last, 0, 2, MPI_INT, w.win), MPI_ERR_TYPE);
    CLASS(MPI_Put(&value, 1, MPI_DATATYPE_NULL, last, 0, 1, MPI_INT, w.win), MPI_ERR_TYPE);
    CLASS(MPI_Put(&value, 1, MPI_INT, last, 0, 2, MPI_INT, w.win), MPI_ERR_TRUNCATE);
    CLASS(MPI_Get(&value, 2, MPI_INT, last, 0, 1, MPI_INT, w.win), MPI_ERR_TRUNCATE);
    CLASS(MPI_Put(NULL, 1, MPI_INT, last, 0, 1, MPI_INT, w.win), MPI_ERR_BUFFER);
    CLASS(MPI_Accumulate(&value, 1, MPI_INT, last, 0, 1, MPI_INT, MPI_OP_NULL, w.win), MPI_ERR_OP);
    CLASS(MPI_Accumulate(&real, 1, MPI_DOUBLE, last, 0, 1, MPI_DOUBLE, MPI_BXOR, w.win), MPI_ERR_OP);
    CLASS(MPI_Accumulate(&real, 1, MPI_DOUBLE, last, 0, 1, MPI_LONG, MPI_SUM, w.win), MPI_ERR_TYPE);
    CLASS(MPI_Compare_and_swap(&real, &real, &real, MPI_DOUBLE, last, 0, w.win), MPI_ERR_TYPE);
    MPI_Op_create((MPI_User_function *)(void (*)(void))test_ranges, 1, &own);
    CLASS(MPI_Accumulate(&value, 1, MPI_INT, last, 0, 1, MPI_INT, own, w.win), MPI_ERR_OP);
    MPI_Op_free(&own);
    MPI_Type_free(&raw);
    CLASS(MPI_Win_fence(1 << 20, w.win), MPI_ERR_ASSERT);
    CLASS(MPI_Win_lock(12345, last, 0, w.win), MPI_ERR_LOCKTYPE);
    CLASS(MPI_Win_lock(MPI_LOCK_SHARED, ranks, 0, w.win), MPI_ERR_RANK);
    CLASS(MPI_Win_attach(w.win, &value, 4), MPI_ERR_RMA_FLAVOR);
    CLASS(MPI_Win_detach(w.win, &value), MPI_ERR_RMA_FLAVOR);
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    int unit;
    MPI_Aint size;
    void *base;
    CLASS(MPI_Win_shared_query(w.win, ranks, &size, &unit, &base), MPI_ERR_RANK);
    CLASS(MPI_Win_set_attr(w.win, MPI_WIN_BASE, NULL), MPI_ERR_KEYVAL);
    CLASS(MPI_Win_delete_attr(w.win, MPI_WIN_MODEL), MPI_ERR_KEYVAL);
    MPI_Win freed = w.win;
    free_window(&w);
    CLASS(MPI_Put(&value, 1, MPI_INT, last, 0, 1, MPI_INT, freed), MPI_ERR_WIN);
    CLASS(MPI_Win_fence(0, freed), MPI_ERR_WIN);
    CLASS(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);
    CLASS(MPI_Win_free(&freed), MPI_ERR_WIN);
    CLASS(MPI_Fetch_and_op(&value, &old, MPI_INT, last, 0, MPI_SUM, MPI_WIN_NULL), MPI_ERR_WIN);
}

/* The end of an epoch of any kind ends the access to a rank that was written to in it. */
static void test_ends(MPI_Win win, MPI_Group world)
{
    int value = 1, last = ranks - 1;
    meet();
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Put(&value, 1, MPI_INT, last, 4 * rank, 1, MPI_INT, win));
    OK(MPI_Win_unlock_all(win));
    CLASS(MPI_Put(&value, 1, MPI_INT, last, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    meet();
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    OK(MPI_Put(&value, 1, MPI_INT, last, 4 * rank, 1, MPI_INT, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    CLASS(MPI_Put(&value, 1, MPI_INT, last, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    meet();
    MPI_Group one;
    MPI_Group_incl(world, 1, &last, &one);
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Put(&value, 1, MPI_INT, 0, 4 * rank, 1, MPI_INT, win));
    OK(MPI_Win_unlock_all(win));
    meet();
    if (rank == last)
        OK(MPI_Win_post(world, 0, win));
    OK(MPI_Win_start(one, 0, win));
    OK(MPI_Put(&value, 1, MPI_INT, last, 4 * rank, 1, MPI_INT, win));
    if (ranks > 1)
        CLASS(MPI_Put(&value, 1, MPI_INT, 0, 4 * rank, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    OK(MPI_Win_complete(win));
    CLASS(MPI_Put(&value, 1, MPI_INT, last, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    if (rank == last)
        OK(MPI_Win_wait(win));
    MPI_Group_free(&one);
}

/* Calls that do not match the open epoch. */
static void test_epochs(void)
{
    struct window w = make_window(ALLOCATED, 64, 1);
    int value = 1, flag, last = ranks - 1;
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN);
    CLASS(MPI_Put(&value, 1, MPI_INT, last, 0, 1, MPI_INT, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Accumulate(&value, 1, MPI_INT, last, 0, 1, MPI_INT, MPI_SUM, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_flush(last, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_flush_all(w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_unlock(last, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_unlock_all(w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_complete(w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_wait(w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_test(w.win, &flag), MPI_ERR_RMA_SYNC);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, last, 0, w.win));
    CLASS(MPI_Win_lock(MPI_LOCK_SHARED, last, 0, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_lock_all(0, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_fence(0, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_start(world, 0, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_free(&w.win), MPI_ERR_RMA_SYNC);
    if (ranks > 1)
        CLASS(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, w.win), MPI_ERR_RMA_SYNC);
    OK(MPI_Put(&value, 1, MPI_INT, last, 4 * rank, 1, MPI_INT, w.win));
    OK(MPI_Win_unlock(last, w.win));
    CLASS(MPI_Put(&value, 1, MPI_INT, last, 0, 1, MPI_INT, w.win), MPI_ERR_RMA_SYNC);
    /* A fence epoch that is followed by a lock gives no access to other ranks. */
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Put(&value, 1, MPI_INT, 0, 4 * rank, 1, MPI_INT, w.win));
    /* Operations with a request are for passive targets (section 12.3.5). */
    MPI_Request request;
    CLASS(MPI_Rput(&value, 1, MPI_INT, 0, 4 * rank, 1, MPI_INT, w.win, &request), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Rget(&value, 1, MPI_INT, 0, 4 * rank, 1, MPI_INT, w.win, &request), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Raccumulate(&value, 1, MPI_INT, 0, 4 * rank, 1, MPI_INT, MPI_SUM, w.win, &request), MPI_ERR_RMA_SYNC);
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, last, 0, w.win));
    if (ranks > 1)
        CLASS(MPI_Put(&value, 1, MPI_INT, 0, 4 * rank, 1, MPI_INT, w.win), MPI_ERR_RMA_SYNC);
    OK(MPI_Win_unlock(last, w.win));
    /* MPI_PROC_NULL can be locked and unlocked. */
    CLASS(MPI_Win_unlock(MPI_PROC_NULL, w.win), MPI_ERR_RMA_SYNC);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, w.win));
    CLASS(MPI_Win_lock_all(0, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_free(&w.win), MPI_ERR_RMA_SYNC);
    OK(MPI_Win_unlock(MPI_PROC_NULL, w.win));
    OK(MPI_Win_lock_all(0, w.win));
    CLASS(MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, w.win), MPI_ERR_RMA_SYNC);
    OK(MPI_Win_unlock_all(w.win));
    meet();
    OK(MPI_Win_post(world, 0, w.win));
    CLASS(MPI_Win_post(world, 0, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_fence(0, w.win), MPI_ERR_RMA_SYNC);
    OK(MPI_Win_start(world, 0, w.win));
    CLASS(MPI_Win_lock(MPI_LOCK_SHARED, last, 0, w.win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_free(&w.win), MPI_ERR_RMA_SYNC);
    OK(MPI_Win_complete(w.win));
    OK(MPI_Win_wait(w.win));
    test_ends(w.win, world);
    MPI_Group_free(&world);
    free_window(&w);
}

/* A window that one rank cannot create is created on no rank. */
static void test_making(void)
{
    MPI_Win win;
    int value;
    MPI_Aint size = rank == 0 ? -1 : 4;
    CLASS(MPI_Win_create(&value, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_SIZE);
    CHECK(win == MPI_WIN_NULL);
    int code = MPI_Win_create(&value, 4, rank == ranks - 1 ? 0 : 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    char text[MPI_MAX_ERROR_STRING];
    int length;
    SAME(class_of(code), MPI_ERR_DISP);
    /* The other ranks get the cause of the error, but not the wrong value. */
    MPI_Error_string(code, text, &length);
    CHECK(strstr(text, rank == ranks - 1 ? "the displacement unit is 0" : "its part of the window: invalid displacement"));
    CLASS(MPI_Win_create(rank == 0 ? NULL : &value, 4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_BASE);
    void *base;
    CLASS(MPI_Win_allocate((MPI_Aint)1 << 60, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win), MPI_ERR_NO_MEM);
    OK(MPI_Win_create(&value, 4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_free(&win));
    struct window w = make_window(DYNAMIC, 64, 1);
    MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN);
    CLASS(MPI_Win_attach(w.win, w.base + 8, 8), MPI_ERR_RMA_ATTACH);
    CLASS(MPI_Win_attach(w.win, &value, -1), MPI_ERR_SIZE);
    CLASS(MPI_Win_detach(w.win, w.base + 8), MPI_ERR_RMA_ATTACH);
    int unit;
    CLASS(MPI_Win_shared_query(w.win, 0, &size, &unit, &base), MPI_ERR_RMA_FLAVOR);
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int kind = 0; kind < KINDS; kind++)
        if (has_kind(kind))
            test_ranges(kind);
    test_arguments();
    test_epochs();
    test_making();
    return finish();
}
