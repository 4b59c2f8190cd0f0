/* Worlds of one job of which one fails: those that are not connected with it go on (MPI-5.0 section 11.10.4). The first
 * argument says how it fails, the second one what connects the worlds then. The third one is a named pipe, whose
 * writers end: who waits for that may be on another host. The fourth one is the rank that fails in its world.
 * test: only=build */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

static void end_by(const char *how)
{
    if (strcmp(how, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 9);
    if (strcmp(how, "dies") == 0)
        raise(SIGKILL);
    if (strcmp(how, "exits") == 0)
        _exit(3);
    int value = 0;
    MPI_Send(&value, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
}

/* Both sides of a world's intercommunicator part, but for what `link` keeps. */
static void part(MPI_Comm *inter, const char *link, int is_child)
{
    MPI_Comm all, dup;
    MPI_Win win;
    char *memory;
    OK(MPI_Intercomm_merge(*inter, is_child, &all));
    OK(MPI_Comm_dup(all, &dup));
    OK(MPI_Win_allocate(8, 1, MPI_INFO_NULL, all, &memory, &win));
    OK(MPI_Comm_free(&dup));
    if (strcmp(link, "window") != 0)
        OK(MPI_Win_free(&win));
    if (strcmp(link, "merged") != 0)
        OK(MPI_Comm_disconnect(&all));
    if (strcmp(link, "inter") != 0)
        OK(MPI_Comm_disconnect(inter));
}

/* The pipe as those hold it that end, or those that wait for it. Each does so before the two sides part. */
static int hold(const char *path, int is_ending)
{
    int fd = open(path, (is_ending ? O_RDWR : O_RDONLY | O_NONBLOCK) | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

/* Until the processes on the other side are gone: the launcher has ended those that did not fail. */
static void await_end(int fd)
{
    struct pollfd end = {fd, 0, 0};
    SAME(poll(&end, 1, -1), 1);
    SAME(end.revents, POLLHUP);
}

static void show_that_all_go_on(const char *who)
{
    int one = 1, sum = 0, size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    SAME(sum, size);
    printf("%s %d goes on\n", who, rank);
}

int main(int argc, char **argv)
{
    MPI_Comm parent, inter, other = MPI_COMM_NULL;
    MPI_Init(&argc, &argv);
    const char *how = argv[1], *link = argv[2], *path = argv[3], *who = argv[4];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        const char *which = argv[5];
        int end = strcmp(which, "stays") == 0 ? -1 : hold(path, strcmp(which, "fails") == 0);
        part(&parent, link, 1);
        if (strcmp(which, "fails") == 0) {
            if (rank == atoi(who))
                end_by(how);
            for (;;)
                pause();
        }
        if (strcmp(which, "outlives") == 0)
            await_end(end);
        if (strcmp(which, "stays") == 0)
            OK(MPI_Barrier(parent));
        show_that_all_go_on("child");
        MPI_Finalize();
        return 0;
    }
    /* Whether the parents fail, and whether there are other children that stay connected. */
    int they_fail = strcmp(link, "parents") == 0, are_two = strcmp(link, "two") == 0;
    char *failing[] = {argv[1], argv[2], argv[3], argv[4], they_fail ? "outlives" : "fails", NULL};
    char *staying[] = {argv[1], "inter", argv[3], argv[4], "stays", NULL};
    int end = hold(path, they_fail);
    OK(MPI_Comm_spawn(argv[0], failing, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE));
    if (are_two) {
        OK(MPI_Comm_spawn(argv[0], staying, 2, MPI_INFO_NULL, 1, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE));
        part(&other, "inter", 0);
    }
    part(&inter, link, 0);
    if (they_fail) {
        if (rank == atoi(who))
            end_by(how);
        for (;;)
            pause();
    }
    await_end(end);
    if (are_two)
        OK(MPI_Barrier(other));
    show_that_all_go_on("parent");
    if (strcmp(link, "later") == 0)
        MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Finalize();
    return 0;
}
