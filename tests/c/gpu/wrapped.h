/* All buffers of a program in device memory: a library that is preloaded into ranks, as the fake driver.
 *
 * The program's heap, static data and stack have a second mapping, without access rights, which the fake driver takes
 * for memory of a device. The program uses the first mapping. The wrappers of MPI's functions, which tests/jobs/gpu.py
 * generates after this text, pass addresses of the second mapping to MPI. A touch by the processor is then SIGSEGV. */
#include "fake_cuda.c"
#include <errno.h>
#include <link.h>
#include <mpi.h>
#include <stdatomic.h>
#include <ucontext.h>

enum { CLASSES = 40, HEADER = 16, PAGE = 4096 };
static const size_t HEAP = (size_t)4 << 30, STACK = (size_t)64 << 20;

static struct { char *at, *shadow; size_t bytes; } ranges[3];
static char *heap_end;
static void *unused[CLASSES];
static atomic_flag heap_lock = ATOMIC_FLAG_INIT;

/* Address of a device for an address of the program's memory; other addresses stay as they are. */
static void *device_address(const void *address)
{
    for (int i = 0; i < 3; i++)
        if ((char *)address >= ranges[i].shadow && (char *)address < ranges[i].shadow + ranges[i].bytes)
            return ranges[i].at + ((char *)address - ranges[i].shadow);
    return (void *)address;
}

static void add_range(int number, char *at, char *shadow, size_t bytes)
{
    ranges[number].at = at;
    ranges[number].shadow = shadow;
    ranges[number].bytes = bytes;
}

static void make_range(int number, size_t bytes)
{
    CUdeviceptr at;
    fake_alloc(&at, bytes, FAKE_DEVICE, number % 2);
    add_range(number, (char *)at, allocations[allocated - 1].shadow, bytes);
}

static void *take(size_t bytes, size_t alignment)
{
    size_t whole = bytes + HEADER + (alignment > HEADER ? alignment : 0);
    int class = 5;
    while (((size_t)1 << class) < whole)
        class++;
    while (atomic_flag_test_and_set(&heap_lock))
        ;
    if (!heap_end) {
        make_range(0, HEAP);
        heap_end = ranges[0].shadow;
    }
    char *block = class < CLASSES ? unused[class] : NULL;
    if (block)
        unused[class] = *(void **)block;
    else if (class < CLASSES && ((size_t)1 << class) <= (size_t)(ranges[0].shadow + HEAP - heap_end)) {
        block = heap_end;
        heap_end += (size_t)1 << class;
    }
    atomic_flag_clear(&heap_lock);
    if (!block) {
        errno = ENOMEM;
        return NULL;
    }
    char *at = block + HEADER;
    if (alignment > HEADER)
        at = (char *)(((uintptr_t)at + alignment - 1) & -alignment);
    ((uint64_t *)at)[-1] = (uint64_t)class << 56 | (uint64_t)(at - block);
    return at;
}

static size_t room(void *at)
{
    uint64_t header = ((uint64_t *)at)[-1];
    return ((size_t)1 << (header >> 56)) - (header & (((uint64_t)1 << 56) - 1));
}

void *malloc(size_t bytes)
{
    return take(bytes, HEADER);
}

void free(void *at)
{
    if (!at)
        return;
    uint64_t header = ((uint64_t *)at)[-1];
    void **block = (void **)((char *)at - (header & (((uint64_t)1 << 56) - 1)));
    while (atomic_flag_test_and_set(&heap_lock))
        ;
    *block = unused[header >> 56];
    unused[header >> 56] = block;
    atomic_flag_clear(&heap_lock);
}

void *calloc(size_t count, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all))
        return NULL;
    void *at = malloc(all);
    return at ? memset(at, 0, all) : NULL;
}

void *realloc(void *at, size_t bytes)
{
    void *new = malloc(bytes);
    if (at && new) {
        memcpy(new, at, room(at) < bytes ? room(at) : bytes);
        free(at);
    }
    return new;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return take(bytes, alignment);
}

int posix_memalign(void **at, size_t alignment, size_t bytes)
{
    *at = take(bytes, alignment);
    return *at ? 0 : ENOMEM;
}

/* Replaces the program's static data by a mapping that a device has too. */
static int adopt_data(struct dl_phdr_info *object, size_t size, void *unused_argument)
{
    (void)size;
    (void)unused_argument;
    uintptr_t from = 0, end = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && header->p_flags & PF_W) {
            from = object->dlpi_addr + header->p_vaddr;
            end = from + header->p_memsz;
        }
    }
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        uintptr_t read_only = object->dlpi_addr + header->p_vaddr + header->p_memsz;
        if (header->p_type == PT_GNU_RELRO && read_only > from)
            from = read_only;
    }
    from = (from + PAGE - 1) & -(uintptr_t)PAGE;
    end = (end + PAGE - 1) & -(uintptr_t)PAGE;
    if (from < end) {
        make_range(1, end - from);
        memcpy(ranges[1].shadow, (void *)from, end - from);
        if (mremap(ranges[1].shadow, end - from, end - from, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)from) == MAP_FAILED)
            abort();
        allocations[allocated - 1].shadow = ranges[1].shadow = (char *)from;
    }
    return 1;
}

static int (*real_main)(int, char **, char **);
static struct { int argc, code; char **argv, **env; ucontext_t caller, called; } start;

static void run_main(void)
{
    start.code = real_main(start.argc, start.argv, start.env);
}

static int main_on_device_stack(int argc, char **argv, char **env)
{
    CUcontext context;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    dl_iterate_phdr(adopt_data, NULL);
    make_range(2, STACK);
    start.argc = argc;
    start.argv = argv;
    start.env = env;
    getcontext(&start.called);
    start.called.uc_stack.ss_sp = ranges[2].shadow;
    start.called.uc_stack.ss_size = STACK;
    start.called.uc_link = &start.caller;
    makecontext(&start.called, run_main, 0);
    swapcontext(&start.caller, &start.called);
    return start.code;
}

void *dlsym(void *, const char *);

int __libc_start_main(int (*function)(int, char **, char **), int argc, char **argv, void (*first)(void),
                      void (*last)(void), void (*end)(void), void *stack_end)
{
    int (*next)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
    next = dlsym((void *)-1L /* RTLD_NEXT */, "__libc_start_main");
    real_main = function;
    return next(main_on_device_stack, argc, argv, first, last, end, stack_end);
}
