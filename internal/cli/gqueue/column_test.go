package gqueue

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
)

// TestPartitionText checks all partitions of a pending job, and the one in which a job runs.
func TestPartitionText(t *testing.T) {
	for state, want := range map[string]string{"PENDING": "short,main", "RUNNING": "short", "COMPLETED": "short"} {
		r := &row{job: &greylagv1.Job{State: wire.Enum[greylagv1.JobState](state), Partition: "short", OtherPartitions: []string{"main"}}}
		if got := string(fieldOf(fields(), 'P').write(nil, view{}, r)); got != want {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
}

// FuzzTable checks that no line has a control character except its line end, whatever a job's name
// and a format hold, and that the fitted table fits.
func FuzzTable(f *testing.F) {
	f.Add("a\x1b[2J", "%.10i %j", 80)
	f.Add("日本語", "%5j|%R", 40)
	f.Fuzz(func(t *testing.T, name, format string, width int) {
		job := &greylagv1.Job{Id: 1, Ref: "1", Name: name, User: name, Partition: name, State: greylagv1.JobState_JOB_STATE_PENDING, Reason: wire.Enum[greylagv1.Reason](name)}
		rows := fold([]*greylagv1.Job{job}, false)
		width = min(max(width, ui.LeastWidth), ui.MostWidth)
		line := strings.TrimSuffix(string(writeRow(nil, fit("iPjutMDR", view{}, rows, width, true), view{}, &rows[0])), "\n")
		if strings.ContainsFunc(line, unicode.IsControl) || !utf8.ValidString(line) || width >= 60 && ui.Columns([]byte(line)) > width {
			t.Errorf("%q in %d columns: %q", name, width, line)
		}
		columns, err := parseFormat(format)
		if err != nil {
			return
		}
		line = strings.TrimSuffix(string(writeRow(nil, columns, view{}, &rows[0])), "\n")
		if strings.ContainsFunc(line, unicode.IsControl) {
			t.Errorf("%q by %q: %q", name, format, line)
		}
	})
}

func TestSortIsByAllKeys(t *testing.T) {
	keys, err := parseSort("P,-t,u")
	if err != nil {
		t.Fatal(err)
	}
	rows := fold([]*greylagv1.Job{
		{Id: 1, Ref: "1", Partition: "b", State: greylagv1.JobState_JOB_STATE_PENDING}, {Id: 2, Ref: "2", Partition: "a", State: greylagv1.JobState_JOB_STATE_PENDING, User: "y"},
		{Id: 3, Ref: "3", Partition: "a", State: greylagv1.JobState_JOB_STATE_PENDING, User: "x"}, {Id: 4, Ref: "4", Partition: "a", State: greylagv1.JobState_JOB_STATE_RUNNING}, {Id: 5, Ref: "5", Partition: "a", State: 99},
		{Id: 6, Ref: "6", Partition: "a", OtherPartitions: []string{"c"}, State: greylagv1.JobState_JOB_STATE_PENDING}, {Id: 7, Ref: "7", Partition: "a", OtherPartitions: []string{"b"}, State: greylagv1.JobState_JOB_STATE_PENDING},
	}, true)
	sortRows(rows, keys)
	var got []uint64
	for _, r := range rows {
		got = append(got, r.job.Id)
	}
	if want := []uint64{4, 3, 2, 5, 7, 6, 1}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// TestFoldKeepsElementsOfAFoldedListing checks that a job that stands for several elements is listed with
// all of them, next to elements of their own.
func TestFoldKeepsElementsOfAFoldedListing(t *testing.T) {
	pending := greylagv1.JobState_JOB_STATE_PENDING
	rows := fold([]*greylagv1.Job{
		{Id: 10, Ref: "10_2", ArrayId: 10, ArrayIndex: 2, Also: 3, State: pending}, {Id: 15, Ref: "10_7", ArrayId: 10, ArrayIndex: 7, State: pending},
	}, false)
	if len(rows) != 1 || string(appendRef(nil, &rows[0])) != "10_[2-5,7]" {
		t.Errorf("%d rows, the first of %s", len(rows), appendRef(nil, &rows[0]))
	}
}
