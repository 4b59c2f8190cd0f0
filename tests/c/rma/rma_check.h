/* Helpers of the one-sided tests: every kind of window over the same number of bytes. */
#ifndef RMA_CHECK_H
#define RMA_CHECK_H
#include "../check.h"

enum { FROM_HEAP, FROM_ALLOC_MEM, ALLOCATED, SHARED, DYNAMIC, IN_PIECES, KINDS };
static const char *const kind_names[KINDS] = {"heap", "alloc_mem", "allocate", "shared", "dynamic", "dynamic in pieces"};

__attribute__((unused)) static int is_dynamic(int kind)
{
    return kind == DYNAMIC || kind == IN_PIECES;
}

struct window {
    MPI_Win win;
    unsigned char *base;
    int kind;
    unsigned char *second; /* of IN_PIECES: start of the second piece, inside an element */
    MPI_Aint *at; /* of a dynamic window: address of each rank's memory; 0 for others */
};

/* All bytes are 0 when this returns on all ranks. `unit` may differ between ranks. */
__attribute__((unused)) static struct window make_window(int kind, size_t bytes, int unit)
{
    struct window made = {.kind = kind, .win = MPI_WIN_NULL};
    MPI_Aint size = (MPI_Aint)bytes, own = 0, end;
    made.at = calloc((size_t)ranks, sizeof *made.at);
    switch (kind) {
    case FROM_HEAP:
        made.base = allocate(bytes);
        OK(MPI_Win_create(made.base, size, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.win));
        break;
    case FROM_ALLOC_MEM:
        OK(MPI_Alloc_mem(size, MPI_INFO_NULL, &made.base));
        OK(MPI_Win_create(made.base, size, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.win));
        break;
    case ALLOCATED:
        OK(MPI_Win_allocate(size, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.base, &made.win));
        break;
    case SHARED:
        OK(MPI_Win_allocate_shared(size, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.base, &made.win));
        break;
    default:
        made.base = allocate(bytes);
        OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &made.win));
        end = kind == IN_PIECES && size > 1 ? size / 2 | 1 : size;
        OK(MPI_Win_attach(made.win, made.base, end));
        if (end < size) {
            made.second = made.base + end;
            OK(MPI_Win_attach(made.win, made.second, size - end));
        }
        MPI_Get_address(made.base, &own);
        MPI_Allgather(&own, 1, MPI_AINT, made.at, 1, MPI_AINT, MPI_COMM_WORLD);
    }
    memset(made.base, 0, bytes);
    MPI_Win_sync(made.win);
    meet();
    return made;
}

/* Displacement of byte `byte` of a rank's memory, which is a multiple of that rank's unit. */
__attribute__((unused)) static MPI_Aint place(const struct window *window, int of, size_t byte, int unit)
{
    return is_dynamic(window->kind) ? window->at[of] + (MPI_Aint)byte : (MPI_Aint)byte / unit;
}

__attribute__((unused)) static void free_window(struct window *window)
{
    if (is_dynamic(window->kind)) {
        meet();
        OK(MPI_Win_detach(window->win, window->base));
        if (window->second)
            OK(MPI_Win_detach(window->win, window->second));
    }
    OK(MPI_Win_free(&window->win));
    CHECK(window->win == MPI_WIN_NULL);
    if (window->kind == FROM_ALLOC_MEM)
        OK(MPI_Free_mem(window->base));
    else if (window->kind == FROM_HEAP || is_dynamic(window->kind))
        free(window->base);
    free(window->at);
}

/* Returns whether these ranks can create windows of this kind. */
__attribute__((unused)) static int has_kind(int kind)
{
    return kind != SHARED || !are_apart();
}
#endif
