! Prints whether libmpifort_abi knows the layout of this compiler's array descriptors; run by mpifort.
program probe
  use, intrinsic :: iso_c_binding, only: c_int, c_loc, c_ptr
  implicit none
  interface
    integer(c_int) function describes(buffer, base, bytes, rank, extents, strides) &
        bind(C, name='mpifp_probe_descriptor_')
      import :: c_int, c_ptr
      type(*), dimension(..), intent(in) :: buffer
      type(c_ptr), value :: base
      integer(c_int), value :: bytes, rank
      integer(c_int), intent(in) :: extents(*), strides(*)
    end function
  end interface
  double precision, target :: scalar, array(5, 4)
  integer(c_int) :: known

  known = describes(scalar, c_loc(scalar), 8, 0, [0], [0])
  known = known + describes(array, c_loc(array), 8, 2, [5, 4], [8, 40])
  known = known + describes(array(5:1:-2, 2:4:2), c_loc(array(5, 2)), 8, 2, [3, 2], [-16, 80])
  if (known == 3) then
    print '(a)', 'known'
  else
    print '(a)', 'unknown'
  end if
end program
