/* A file system with faults, to be preloaded: calls on files in TMPDIR move less than asked, are interrupted or fail,
 * as the words of FAULTS say.
 *   short       a transfer moves 1 byte to all of it, as the rank and the number of the call have it
 *   eintr       every third call is interrupted, and always one that allocates more than 1 MiB: as on tmpfs while a
 *               timer's signals come
 *   write=N:E   the N-th write to an open file fails with the error of number E, and so do all later ones; so does what
 *               takes space: allocating counts as a write
 *   read=N:E, size=N:E, sync=N:E, close=N:E
 *   lie         allocating makes a file longer and takes no space
 * Where FAULTS_RANK is, calls fail in that rank alone. At its end each rank adds a line to FAULTS_LOG: how many
 * transfers were short, how many calls were interrupted, how many failed, how many lied. */
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

/* Whether a call on an open file is interrupted or fails; errno says why. */
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

/* How much of a transfer is made; a quarter of them are whole. */
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

/* Of many pieces a short transfer moves a part of the first one. */
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

/* Space that is promised and is not there when a page is written: as where pages are shared with another file. */
static int lie(int fd, off_t end)
{
    struct stat facts;
    injected[LIED]++;
    return fstat(fd, &facts) == 0 && (facts.st_size >= end || NEXT(ftruncate)(fd, end) == 0) ? 0 : -1;
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

/* What fails is closed all the same. */
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

/* Counts the calls on a new descriptor from zero. */
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
    /* Programs do not ask for that flag: their own files open at once. */
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
