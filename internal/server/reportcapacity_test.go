package server_test

import (
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestReportCapacity checks that allocated time counts whether or not the capacity is known, that
// nodes count from their registration, and that any user may ask.
func TestReportCapacity(t *testing.T) {
	w := newWorld(t, options{})
	feed(t, w, func() int { return 400 })
	day := reportDay.AddDate(0, 0, 1)
	ask := func(from, to time.Time) (map[string]*greylagv1.CapacityRow, *greylagv1.GetCapacityResponse) {
		answer, err := w.as(ann).Reports().GetCapacity(t.Context(), &greylagv1.GetCapacityRequest{Periods: periods(from, to)})
		must(t, err)
		rows := map[string]*greylagv1.CapacityRow{}
		for _, r := range answer.Rows {
			rows[r.Resource] = r
		}
		return rows, answer
	}
	past, answer := ask(reportDay, day)
	want := recounted(t, reportDay, day).gpu
	if gpu := past["gpu:h100"]; gpu.GetAllocated() != want || past["cpu"].GetAllocated() != 2*want || gpu.GetTotal() != 0 || answer.Since != nil || !answer.Head.Ready {
		t.Errorf("%v; want %d allocated of nothing that is known", answer, want)
	}
	before := time.Now()
	newNode(w, "n1")
	from := before.Truncate(time.Second)
	w.until("time passes", func() bool {
		rows, answer := ask(from, from.Add(time.Hour))
		gpu, cpu := rows["gpu:h100"], rows["cpu"]
		if since := answer.Since.AsTime(); answer.Since == nil || since.Before(from) || since.After(time.Now()) || cpu.GetTotal() != 4*gpu.GetTotal() || gpu.GetDown()+gpu.GetDrained() != 0 {
			t.Fatalf("%v of a node with 2 GPUs and 8 CPUs", answer)
		}
		return gpu.GetTotal() > 0
	})
}
