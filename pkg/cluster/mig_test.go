package cluster

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
)

// h100 is an H100 with 80 GB.
var h100 = MIGModels()[1]

// TestMIGPlaces: every instance has a real place, and no two overlap.
func TestMIGPlaces(t *testing.T) {
	for layout, want := range map[string]string{
		"3g.40gb 2g.20gb 1g.10gb 1g.10gb": "[2g.20gb at 0-1 1g.10gb at 2-2 1g.10gb at 3-3 3g.40gb at 4-7]",
		"3g.40gb 3g.40gb":                 "[3g.40gb at 0-3 3g.40gb at 4-7]",
		"3g.40gb 4g.40gb":                 "[4g.40gb at 0-3 3g.40gb at 4-7]",
		"1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb": "[1g.10gb at 0-0 1g.10gb at 1-1 1g.10gb at 2-2 1g.10gb at 3-3 1g.10gb at 4-4 1g.10gb at 5-5 1g.10gb at 6-6]",
		"2g.20gb 2g.20gb 2g.20gb 1g.10gb":                         "[2g.20gb at 0-1 2g.20gb at 2-3 2g.20gb at 4-5 1g.10gb at 6-6]",
		"1g.20gb 1g.20gb 1g.20gb 1g.20gb":                         "[1g.20gb at 0-1 1g.20gb at 2-3 1g.20gb at 4-5 1g.20gb at 6-7]",
		"7g.80gb":                                                 "[7g.80gb at 0-7]",
		"4g.40gb 4g.40gb":                                         "",
		"3g.40gb 3g.40gb 1g.10gb":                                 "",
		"7g.80gb 1g.10gb":                                         "",
		"1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb": "",
		"2g.20gb 2g.20gb 2g.20gb 2g.20gb":                                 "",
		"1g.5gb":                                                          "",
	} {
		places, err := PlaceMIG(h100, strings.Fields(layout))
		if want == "" {
			if !errors.Is(err, ErrMIGLayout) {
				t.Errorf("%s: %v %v", layout, places, err)
			}
			continue
		}
		if got := fmt.Sprint(places); got != want || err != nil {
			t.Errorf("%s: %v %v", layout, got, err)
		}
	}
}

// TestMIGLayoutCheck: a layout needs one model that has it.
func TestMIGLayoutCheck(t *testing.T) {
	for layout, want := range map[string]string{
		"3g.40gb 2g.20gb 1g.10gb":         "",
		"1g.10gb+me 1g.10gb":              "",
		"3g.20gb 3g.20gb":                 "",
		"1g.18gb 3g.71gb":                 "",
		"4g.24gb":                         "",
		"h100":                            `impossible MIG layout: "h100" is no profile, such as 1g.10gb or 3g.40gb`,
		"1g.5gb 1g.18gb":                  "impossible MIG layout: no GPU has all of the profiles 1g.5gb, 1g.18gb",
		"4g.40gb 4g.40gb":                 "impossible MIG layout: 4g.40gb, 4g.40gb overlap on one GPU, wherever they are placed",
		"3g.40gb 3g.40gb 1g.10gb":         "impossible MIG layout: 3g.40gb, 3g.40gb, 1g.10gb overlap on one GPU, wherever they are placed",
		"1g.6gb 1g.6gb 4g.24gb":           "impossible MIG layout: 1g.6gb, 1g.6gb, 4g.24gb overlap on one GPU, wherever they are placed",
		"3g.40gb 2g.20gb 1g.10gb 2g.20gb": "impossible MIG layout: 3g.40gb, 2g.20gb, 1g.10gb, 2g.20gb overlap on one GPU, wherever they are placed",
	} {
		err := CheckMIGLayout(strings.Fields(layout))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want || (err != nil) != errors.Is(err, ErrMIGLayout) {
			t.Errorf("%s: %q", layout, got)
		}
	}
}

// TestMIGShare: the larger of compute and memory counts.
func TestMIGShare(t *testing.T) {
	const whole = 81559 * MiB // as an H100 with 80 GB reports
	for _, c := range []struct {
		profile string
		memory  Bytes
		want    int32
	}{
		{"1g.10gb", 9856 * MiB, 8}, {"1g.20gb", 19968 * MiB, 14}, {"2g.20gb", 20096 * MiB, 16}, {"3g.40gb", 40448 * MiB, 28},
		{"4g.40gb", 40448 * MiB, 32}, {"7g.80gb", 80896 * MiB, 56}, {"h100", whole, 56}, {"1g.10gb", 0, 8},
	} {
		if got := MIGShare(c.profile, c.memory, whole); got != c.want {
			t.Errorf("%s: %d, want %d", c.profile, got, c.want)
		}
	}
	for name, want := range map[string]bool{"1g.10gb": true, "7g.141gb": true, "1g.10gb+me": true, "1g": false, "h100": false, "1g.gb": false, "gpu": false, "1g.10gbx": false} {
		if IsMIGProfile(name) != want {
			t.Error(name)
		}
	}
}

// TestPricedType: an instance is charged as a share of its parent, by a name that both can be read from.
func TestPricedType(t *testing.T) {
	for _, c := range []struct {
		gpu  GPU
		want string
	}{
		{GPU{Type: "h100"}, "h100"},
		{GPU{Type: "1g.10gb"}, "1g.10gb"}, // its parent is unknown
		{GPU{Type: "1g.10gb", ParentType: "h100", Share: 8}, "1g.10gb@h100:8"},
		{GPU{Type: "1g.10gb+me.all", ParentType: "a:b@c", Share: MIGShares}, "1g.10gb+me.all@a:b@c:56"},
		{GPU{Type: "1g.10gb", ParentType: "h100", Share: MIGShares + 1}, "1g.10gb"},
	} {
		name := c.gpu.PricedType()
		profile, parent, share := CutPricedType(name)
		if name != c.want || profile != c.gpu.Type || parent != "" && (parent != c.gpu.ParentType || share != int64(c.gpu.Share)) {
			t.Errorf("%+v: %s, read as %s of %s, %d", c.gpu, name, profile, parent, share)
		}
	}
	for _, name := range []string{"", "@", "h100@x:8", "1g.10gb@", "1g.10gb@:8", "1g.10gb@h100", "1g.10gb@h100:0", "1g.10gb@h100:57", "1g.10gb@h100:-8"} {
		if gpuType, parent, share := CutPricedType(name); gpuType != name || parent != "" || share != 0 {
			t.Errorf("%q is read as %s of %s, %d", name, gpuType, parent, share)
		}
	}
}

// TestOfMIGShare: the part of an amount is exact, and rounded down.
func TestOfMIGShare(t *testing.T) {
	for _, amount := range []int64{0, 1, 55, 56, 57, 2_000_000, math.MaxInt64} {
		for share := int64(1); share <= MIGShares; share++ {
			want := new(big.Int).Mul(big.NewInt(amount), big.NewInt(share))
			want.Div(want, big.NewInt(MIGShares))
			if got := OfMIGShare(amount, share); got != want.Int64() {
				t.Errorf("%d/56 of %d: %d, want %s", share, amount, got, want)
			}
		}
	}
}
