! Passes each rank's number once around the ring and adds them up, by the module mpi.
program ring
  use mpi
  implicit none
  integer :: rank, ranks, total, step, ierror, passing(1), status(MPI_STATUS_SIZE)

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  total = rank
  passing = rank
  do step = 1, ranks - 1
    call MPI_Sendrecv_replace(passing, 1, MPI_INTEGER, mod(rank + 1, ranks), 0, &
        mod(rank + ranks - 1, ranks), 0, MPI_COMM_WORLD, status, ierror)
    total = total + passing(1)
  end do
  if (rank == 0) print '(a,i0,a,i0)', 'mpi: ', ranks, ' ranks, sum ', total
  call MPI_Finalize(ierror)
  if (total /= ranks * (ranks - 1) / 2) stop 1
end program
