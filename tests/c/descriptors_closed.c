/* A program that closes descriptors it does not know at a moment of the job's life and opens a file of its own in their
 * places. usage: descriptors_closed MOMENT low|all. `low` closes 3 to 255, as many programs do; `all` puts the file in
 * the place of every descriptor above 2. tests/jobs/descriptors.py compares the files, also when the job fails.
 * test: only=build */
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 1 << 20, LONG = 3 << 20, OWN = 64 << 10 };

static int moment, all, now, own = -1, is_child;

/* Closes, and gives the numbers to the program's own file of known contents. */
static void take_over(void)
{
    static char bytes[OWN];
    char name[64];
    int closed[4096], count = 0;
    if (now++ != moment)
        return;
    snprintf(name, sizeof name, "own.%d", rank);
    memset(bytes, 'A', OWN);
    if (all) {
        DIR *folder = opendir("/proc/self/fd");
        CHECK(folder != NULL);
        for (struct dirent *entry; (entry = readdir(folder)) && count < 4096;)
            if (atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(folder))
                closed[count++] = atoi(entry->d_name);
        closedir(folder);
        for (int at = 0; at < count; at++)
            close(closed[at]);
    } else {
        for (int fd = 3; fd < 256; fd++)
            close(fd);
    }
    own = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(own >= 0 && write(own, bytes, OWN) == OWN);
    for (int at = 0; at < count; at++)
        if (closed[at] != own)
            CHECK(dup2(own, closed[at]) == closed[at]);
    for (int at = 0; at < 32; at++)
        CHECK(dup(own) >= 0);
}

static void exchange(int bytes)
{
    static unsigned char out[LONG], in[LONG];
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int round = 0; round < 20; round++) {
        memset(out, rank + round, bytes);
        OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, 1, in, bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        SAME(in[bytes / 2], (from + round) & 255);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void use_window(void)
{
    int *base, value = rank, from = (rank + ranks - 1) % ranks;
    MPI_Win win;
    OK(MPI_Win_allocate(BYTES, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    take_over(); /* 4: between a window and its use */
    memset(base, 0, BYTES);
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_INT, (rank + 1) % ranks, BYTES / 8, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    SAME(base[BYTES / 8], from);
    OK(MPI_Win_free(&win));
}

static void use_memory(void)
{
    for (int at = 0; at < 8; at++) {
        void *memory;
        OK(MPI_Alloc_mem(BYTES << (at % 5), MPI_INFO_NULL, &memory));
        memset(memory, 'B', BYTES);
        OK(MPI_Free_mem(memory));
    }
}

/* The file's descriptor is among those that `all` takes: then its calls fail, and say why. */
static void use_file(void)
{
    char value = 'a' + rank % 26, text[MPI_MAX_ERROR_STRING];
    int length, code;
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, "shared", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    take_over(); /* 7: between opening a file and writing to it */
    code = MPI_File_write_at(file, rank, &value, 1, MPI_CHAR, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
        CHECK(all && moment == 7);
        OK(MPI_Error_string(code, text, &length));
        CHECK(strstr(text, "the program closed the descriptor"));
    }
    code = MPI_File_set_size(file, 1000);
    CHECK(code == MPI_SUCCESS || (all && moment == 7));
    code = MPI_File_close(&file);
    CHECK(code == MPI_SUCCESS || (all && moment == 7));
}

static void use_spawn(char *program)
{
    MPI_Comm child;
    char *words[] = {"child", "low", NULL};
    OK(MPI_Comm_spawn(program, words, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE));
    OK(MPI_Barrier(child));
    OK(MPI_Comm_disconnect(&child));
}

int main(int argc, char **argv)
{
    MPI_Comm parent, copy;
    start(&argc, &argv);
    is_child = argc > 1 && !strcmp(argv[1], "child");
    moment = argc > 1 && !is_child ? atoi(argv[1]) : -1;
    all = argc > 2 && !strcmp(argv[2], "all");
    if (is_child) {
        OK(MPI_Comm_get_parent(&parent));
        OK(MPI_Barrier(parent));
        OK(MPI_Comm_disconnect(&parent));
        return finish();
    }
    take_over(); /* 0: after MPI_Init */
    exchange(8);
    take_over(); /* 1: between messages */
    exchange(30000);
    take_over(); /* 2: before long messages */
    exchange(LONG);
    take_over(); /* 3: before a window */
    use_window(); /* 4 */
    take_over(); /* 5: before memory */
    use_memory();
    take_over(); /* 6: before a file */
    use_file(); /* 7 */
    take_over(); /* 8: before a spawn */
    use_spawn(argv[0]);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    OK(MPI_Comm_free(&copy));
    exchange(LONG);
    take_over(); /* 9: before MPI_Finalize */
    return finish();
}
