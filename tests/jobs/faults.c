/* A file system with faults, to be preloaded: calls on files in TMPDIR transfer less than requested, are interrupted or
 * fail, by the words of FAULTS.
 *   short       a transfer moves from 1 byte to all of it, by rank and number of the call
 *   eintr       every third call is interrupted, and every allocation of more than 1 MiB, as on tmpfs while timer
 *               signals arrive
 *   write=N:E   the N-th write to an open file and all later ones fail with error number E; allocating counts as a
 *               write
 *   read=N:E, size=N:E, sync=N:E, close=N:E
 *   lie         allocating extends a file and allocates no space
 * With FAULTS_RANK, calls fail in that rank only. At its end each rank adds a line to FAULTS_LOG: numbers of short
 * transfers, interrupted calls, failed calls, and false allocations. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 4096 };
enum call { READ, WRITE, SIZE, SYNC, CLOSE, CALLS };
enum fault { SHORT, INTERRUPTED, FAILED, LIED, FAULTS };
static const char *const names[CALLS] = {"read=", "write=", "size=", "sync=", "close="};

static const char *words = "", *folder = "?";
static unsigned rank, first[CALLS];
static int errors[CALLS], is_short, is_interrupted, lies;
static atomic_uint calls, seen[FILES][CALLS], injected[FAULTS];

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void)
{
    const char *own = getenv("FASTPATH_RANK"), *faulty = getenv("FAULTS_RANK");
    words = getenv("FAULTS") ? getenv("FAULTS") : "";
    folder = getenv("TMPDIR") ? getenv("TMPDIR") : "?";
    rank = own ? atoi(own) : 0;
    is_short = strstr(words, "short") != NULL;
    is_interrupted = strstr(words, "eintr") != NULL;
    lies = strstr(words, "lie") != NULL;
    for (int call = 0; call < CALLS; call++) {
        const char *found = strstr(words, names[call]);
        if (found && (!faulty || (unsigned)atoi(faulty) == rank))
            sscanf(found + strlen(names[call]), "%u:%d", &first[call], &errors[call]);
    }
}

__attribute__((destructor)) static void end(void)
{
    FILE *log = getenv("FAULTS_LOG") ? fopen(getenv("FAULTS_LOG"), "a") : NULL;
    if (log) {
        fprintf(log, "%u %u %u %u\n", injected[SHORT], injected[INTERRUPTED], injected[FAILED], injected[LIED]);
        fclose(log);
    }
}

static int is_inside(const char *path)
{
    return strncmp(path, folder, strlen(folder)) == 0;
}

static int is_faulty(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return is_inside(path);
}

static int interrupts(int always)
{
    if (!is_interrupted || (atomic_fetch_add(&calls, 1) % 3 != 2 && !always))
        return 0;
    injected[INTERRUPTED]++;
    errno = EINTR;
    return 1;
}

/* Returns whether a call on an open file is interrupted or fails, with the error in errno. */
static int fails(int fd, enum call call)
{
    if (!is_faulty(fd))
        return 0;
    if (interrupts(0))
        return 1;
    if (!errors[call] || fd >= FILES || ++seen[fd][call] < first[call])
        return 0;
    injected[FAILED]++;
    errno = errors[call];
    return 1;
}

/* Number of bytes that a transfer moves; a quarter of the transfers are whole. */
static size_t part_of(int fd, size_t bytes)
{
    if (!is_short || bytes < 2 || !is_faulty(fd))
        return bytes;
    unsigned draw = (atomic_fetch_add(&calls, 1) * 16 + rank + 1) * 2654435761u;
    draw = (draw ^ draw >> 15) * 2246822519u;
    draw ^= draw >> 13;
    size_t part = draw % 4 == 0 ? bytes : 1 + (draw >> 2) % bytes;
    injected[SHORT] += part < bytes;
    return part;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    return fails(fd, READ) ? -1 : NEXT(pread)(fd, to, part_of(fd, bytes), offset);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    return fails(fd, WRITE) ? -1 : NEXT(pwrite)(fd, from, part_of(fd, bytes), offset);
}

/* A short transfer of several pieces moves a part of the first one. */
ssize_t preadv(int fd, const struct iovec *to, int pieces, off_t offset)
{
    if (fails(fd, READ))
        return -1;
    size_t part = part_of(fd, to->iov_len);
    return part < to->iov_len ? NEXT(pread)(fd, to->iov_base, part, offset) : NEXT(preadv)(fd, to, pieces, offset);
}

ssize_t pwritev(int fd, const struct iovec *from, int pieces, off_t offset)
{
    if (fails(fd, WRITE))
        return -1;
    size_t part = part_of(fd, from->iov_len);
    return part < from->iov_len ? NEXT(pwrite)(fd, from->iov_base, part, offset) : NEXT(pwritev)(fd, from, pieces, offset);
}

/* Space that is promised but missing when a page is written, as with pages shared between files. The lock keeps another
 * rank from extending the file in between, whose bytes this call would cut off. */
static int lie(int fd, off_t end)
{
    struct stat facts;
    injected[LIED]++;
    flock(fd, LOCK_EX);
    int result = fstat(fd, &facts);
    if (result == 0 && facts.st_size < end)
        result = NEXT(ftruncate)(fd, end);
    flock(fd, LOCK_UN);
    return result;
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if (fails(fd, WRITE))
        return -1;
    return lies && is_faulty(fd) ? lie(fd, offset + bytes) : NEXT(fallocate)(fd, mode, offset, bytes);
}

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    if (fails(fd, WRITE) || (is_faulty(fd) && interrupts(bytes > 1 << 20)))
        return errno;
    return NEXT(posix_fallocate)(fd, offset, bytes);
}

int ftruncate(int fd, off_t bytes)
{
    return fails(fd, SIZE) ? -1 : NEXT(ftruncate)(fd, bytes);
}

int fsync(int fd)
{
    return fails(fd, SYNC) ? -1 : NEXT(fsync)(fd);
}

/* A close that fails has closed the descriptor all the same. */
int close(int fd)
{
    int failed = fails(fd, CLOSE), error = errno, closed = NEXT(close)(fd);
    if (failed)
        errno = error;
    return failed ? -1 : closed;
}

int unlink(const char *path)
{
    return is_inside(path) && interrupts(0) ? -1 : NEXT(unlink)(path);
}

int statfs(const char *path, struct statfs *facts)
{
    return is_inside(path) && interrupts(0) ? -1 : NEXT(statfs)(path, facts);
}

int fstatfs(int fd, struct statfs *facts)
{
    return is_faulty(fd) && interrupts(0) ? -1 : NEXT(fstatfs)(fd, facts);
}

/* Starts the counts of a new descriptor at zero. */
static int begin_count(int fd)
{
    if (fd >= 0 && fd < FILES)
        memset(seen[fd], 0, sizeof seen[fd]);
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    /* The library opens files with that flag; files of the program do not have it. */
    if (flags & O_CLOEXEC && is_inside(path) && interrupts(0))
        return -1;
    return begin_count(NEXT(open)(path, flags, mode));
}

int fcntl(int fd, int what, ...)
{
    va_list rest;
    va_start(rest, what);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (what == F_OFD_SETLKW && is_faulty(fd) && interrupts(0))
        return -1;
    int result = NEXT(fcntl)(fd, what, argument);
    return what == F_DUPFD_CLOEXEC ? begin_count(result) : result;
}
