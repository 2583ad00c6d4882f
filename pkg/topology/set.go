package topology

import "math/bits"

// MaxGPUs is the number of devices of a node that can be used; 16 GPUs with seven MIG slices each
// are 112. Devices with a higher index are never used.
const MaxGPUs = 256

// GPUSet is a set of GPU indices of one node. The zero value is empty. It can be compared and copied.
type GPUSet [MaxGPUs / 64]uint64

// Has reports whether i is in the set.
func (s GPUSet) Has(i int32) bool {
	return i >= 0 && i < MaxGPUs && s[i/64]&(1<<(i%64)) != 0
}

// With returns the set with i in it; an index out of range changes nothing.
func (s GPUSet) With(i int32) GPUSet {
	if i >= 0 && i < MaxGPUs {
		s[i/64] |= 1 << (i % 64)
	}
	return s
}

// And returns what is in both.
func (s GPUSet) And(o GPUSet) GPUSet {
	for w := range s {
		s[w] &= o[w]
	}
	return s
}

// Or returns what is in either.
func (s GPUSet) Or(o GPUSet) GPUSet {
	for w := range s {
		s[w] |= o[w]
	}
	return s
}

// Minus returns what is in s and not in o.
func (s GPUSet) Minus(o GPUSet) GPUSet {
	for w := range s {
		s[w] &^= o[w]
	}
	return s
}

// Len returns the number of members.
func (s GPUSet) Len() int32 {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return int32(n)
}

// Lowest returns the n lowest members; all when there are fewer.
func (s GPUSet) Lowest(n int32) GPUSet {
	var out GPUSet
	for w := range s {
		for rest := s[w]; rest != 0 && n > 0; n-- {
			low := rest & -rest
			out[w] |= low
			rest &^= low
		}
	}
	return out
}

// Indices returns the members, ascending; nil for the empty set.
func (s GPUSet) Indices() []int32 {
	n := s.Len()
	if n == 0 {
		return nil
	}
	list := make([]int32, 0, n)
	for w := range s {
		for rest := s[w]; rest != 0; rest &= rest - 1 {
			list = append(list, int32(w*64+bits.TrailingZeros64(rest)))
		}
	}
	return list
}

// SetOf returns the set of some indices.
func SetOf(indices []int32) GPUSet {
	var s GPUSet
	for _, i := range indices {
		s = s.With(i)
	}
	return s
}
