package cluster

import (
	"errors"
	"fmt"
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
