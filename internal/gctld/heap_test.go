package gctld

import "testing"

func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 10 << 20: 400, 128 << 20: 400, 256 << 20: 200, 512 << 20: 100, 4 << 30: 100} {
		if got := growth(live); got != want {
			t.Errorf("growth(%d MiB) is %d, want %d", live>>20, got, want)
		}
	}
}
