! Fault tolerance from Fortran: agreement, revocation, shrinking, and the groups of failed ranks, of which there are none.
! test: ranks=2,3 methods=mpif.h,mpi,mpi_f08 env=FASTPATH_FT=1
#include "methods.h"
#include "check.h"
#if defined(METHOD_F08)
#define USE_EXTENSIONS use mpi_f08_ext
#define INCLUDE_EXTENSIONS
#elif defined(METHOD_MPI)
#define USE_EXTENSIONS use mpi_ext
#define INCLUDE_EXTENSIONS
#else
#define USE_EXTENSIONS
#define INCLUDE_EXTENSIONS include 'mpif-ext.h'
#endif
program fortran_recovery
  USE_METHOD
  USE_EXTENSIONS
  implicit none
  INCLUDE_METHOD
  INCLUDE_EXTENSIONS
  integer :: rank, ranks, failures, ierr
  COMM :: comm

  call start()
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
  call MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN, ierr)
  call query()
  call agreement()
  call revocation()
  call MPI_Comm_free(comm, ierr)
  call finish()
contains
#include "check.inc"

  subroutine query()
    integer(MPI_ADDRESS_KIND) :: is_on
    integer :: acknowledged
    logical :: found
    GROUP :: failed
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, is_on, found, ierr)
    CHECK(found)
    SAME(is_on, 1)
    call MPIX_Comm_get_failed(comm, failed, ierr)
    call expect_none(failed)
    acknowledged = -1
    call MPIX_Comm_ack_failed(comm, 1, acknowledged, ierr)
    SAME(ierr, MPI_SUCCESS)
    SAME(acknowledged, 0)
    call MPIX_Comm_failure_ack(comm, ierr)
    SAME(ierr, MPI_SUCCESS)
    call PMPIX_Comm_failure_get_acked(comm, failed, ierr)
    call expect_none(failed)
  end subroutine query

  subroutine expect_none(failed)
    GROUP, intent(inout) :: failed
    integer :: length
    SAME(ierr, MPI_SUCCESS)
    call MPI_Group_size(failed, length, ierr)
    SAME(length, 0)
    if (failed /= MPI_GROUP_EMPTY) call MPI_Group_free(failed, ierr)
  end subroutine expect_none

  subroutine agreement()
    integer, asynchronous :: later
    integer :: flag
    REQUEST :: request
    flag = ibclr(7, rank)
    call MPIX_Comm_agree(comm, flag, ierr)
    SAME(ierr, MPI_SUCCESS)
    SAME(flag, merge(4, 0, ranks == 2))
    later = ibset(8, rank)
    call MPIX_Comm_iagree(comm, later, request, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    SAME(later, 8)
  end subroutine agreement

  subroutine revocation()
    logical :: is_revoked
    integer :: comparison
    COMM :: small
    is_revoked = .true.
    call MPIX_Comm_is_revoked(comm, is_revoked, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(.not. is_revoked)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPIX_Comm_revoke(comm, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPIX_Comm_is_revoked(comm, is_revoked, ierr)
    CHECK(is_revoked)
    call MPI_Barrier(comm, ierr)
    CLASS(MPIX_ERR_REVOKED)
    call MPIX_Comm_shrink(comm, small, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Comm_compare(comm, small, comparison, ierr)
    SAME(comparison, MPI_CONGRUENT)
    call MPI_Barrier(small, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Comm_free(small, ierr)
  end subroutine revocation
end program fortran_recovery
