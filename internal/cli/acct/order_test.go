package acct

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestOrder has few jobs printed in order of id, and many as they come, all of them once.
func TestOrder(t *testing.T) {
	columns, err := parseFormat("JobIDRaw")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 3, mostSorted, mostSorted + 1, mostSorted + 7} {
		var out strings.Builder
		w := newWriter(&out, columns, Style{Layout: Parsable2})
		s := sorter{w: w, in: &setting{}}
		want := make([]string, n)
		for i := range n {
			id := n - i
			want[i] = strconv.Itoa(id)
			s.add(&greylagv1.PastJob{Job: &greylagv1.Job{Id: uint64(id)}})
		}
		s.end()
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		if n <= mostSorted {
			slices.Reverse(want)
		}
		if got := strings.Fields(out.String()); !slices.Equal(got, want) {
			t.Errorf("of %d jobs %d are printed, from %q on", n, len(got), got[:min(len(got), 5)])
		}
	}
}
