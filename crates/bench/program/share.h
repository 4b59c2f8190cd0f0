/* A page that all ranks of the job share outside of MPI, if they are on one host. */
#ifndef FASTPATH_BENCH_SHARE_H
#define FASTPATH_BENCH_SHARE_H

#include <stdatomic.h>
#include <stdint.h>

struct share {
    _Alignas(128) _Atomic uint64_t ping;
    _Alignas(128) _Atomic uint64_t pong;
    _Alignas(128) _Atomic uint32_t released; /* rests that have ended (rest.c) */
    _Alignas(128) uint64_t mark;             /* identifies this job's page */
};

void open_share(void); /* all ranks call it */
void open_wire(void);  /* all ranks call it, after open_share (connect.c) */

#endif
