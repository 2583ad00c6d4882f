package fairshare

import (
	"cmp"
	"math"
	"math/bits"
)

// near is the largest difference of two equal quotients by rounding.
const near = 1e-12

// order returns a negative number when a comes before b by LevelFS, and 0 when they are equal. It
// is exact, whatever the rounding was.
func (r *ranking) order(a, b int32) int {
	x, y := r.factors[a].LevelFS, r.factors[b].LevelFS
	if x == 0 || y == 0 || math.IsInf(x, 1) || math.IsInf(y, 1) || math.Abs(x-y) > near*(x+y) {
		return cmp.Compare(y, x)
	}
	return compareWide(r.product(b, a), r.product(a, b))
}

// product returns the numerator of a's LevelFS times the denominator of b's.
func (r *ranking) product(a, b int32) [4]uint64 {
	pa, pb := r.up[a], r.up[b]
	if pa == pb { // the common factor does not matter
		return wide([2]uint64{0, uint64(r.nodes[a].Shares)}, [2]uint64{0, uint64(r.nodes[b].Usage)})
	}
	return wide(double(r.nodes[a].Shares, r.nodes[pa].Usage), double(r.sums[pb], r.nodes[b].Usage))
}

// double returns the product of two numbers, the high word first.
func double(a, b int64) [2]uint64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return [2]uint64{hi, lo}
}

// wide returns the product of two numbers of 128 bits, the high word first.
func wide(a, b [2]uint64) (out [4]uint64) {
	h1, l1 := bits.Mul64(a[1], b[1])
	h2, l2 := bits.Mul64(a[0], b[1])
	h3, l3 := bits.Mul64(a[1], b[0])
	h4, l4 := bits.Mul64(a[0], b[0])
	var c1, c2, c3, c4 uint64
	out[3] = l1
	out[2], c1 = bits.Add64(h1, l2, 0)
	out[2], c2 = bits.Add64(out[2], l3, 0)
	out[1], c3 = bits.Add64(h2, h3, c1)
	out[1], c4 = bits.Add64(out[1], l4, c2)
	out[0] = h4 + c3 + c4
	return out
}

func compareWide(a, b [4]uint64) int {
	for i := range a {
		if c := cmp.Compare(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}
