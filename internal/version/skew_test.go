package version

import "testing"

func TestCompatible(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"0.1.0", "0.1.0", true},
		{"0.1.0~20261126.063423.07b0a7f", "0.1.0", true},
		{"0.1.3", "0.2.0", true},
		{"0.1.0", "0.3.0", false},
		{"0.9.0", "0.10.0", true},
		{"0.10.0", "0.8.4", false},
		{"1.0.0", "0.9.0", false},
		{"dev", "0.9.0", true},
		{"", "7.1", true},
		{"0.1", "0.3", false},
		{"0.-5.0", "0.3.0", true},
	} {
		if Compatible(c.a, c.b) != c.want || Compatible(c.b, c.a) != c.want {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.want)
		}
	}
}
