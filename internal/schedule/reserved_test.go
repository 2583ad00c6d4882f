package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// holder returns the reservation that has a node at an instant: maintenance, else the first by
// name. "" without one, "-" under maintenance.
func holder(snap *cluster.Snapshot, node string, at cluster.Instant) string {
	name := ""
	for _, r := range snap.Policy.Scheduling.Reservations {
		nodes, _ := hostlist.Expand(strings.Join(r.Nodes, ","))
		if at < r.Start || at >= r.End || !slices.Contains(nodes, node) && !slices.Contains(nodes, "ALL") {
			continue
		}
		if len(r.Users)+len(r.Accounts) == 0 {
			return "-"
		}
		if name == "" || r.Name < name {
			name = r.Name
		}
	}
	return name
}

// mine reports whether a node is for a job throughout an interval.
func mine(snap *cluster.Snapshot, j *cluster.Job, node string, from, to cluster.Instant) bool {
	moments := []cluster.Instant{from}
	for _, r := range snap.Policy.Scheduling.Reservations {
		for _, at := range []cluster.Instant{r.Start, r.End} {
			if at > from && at < to {
				moments = append(moments, at)
			}
		}
	}
	return !slices.ContainsFunc(moments, func(at cluster.Instant) bool { return holder(snap, node, at) != j.Spec.Reservation })
}

// randomReservations returns reservations of nodes and times that may overlap; some admit no user.
func randomReservations(r *rand.Rand, nodes []string) []cluster.Reservation {
	var list []cluster.Reservation
	for i := range r.IntN(2) * (1 + r.IntN(4)) {
		from := start.Add(time.Duration(r.IntN(360)-60) * time.Minute)
		x := cluster.Reservation{
			Name: string(rune('a'+i)) + fmt.Sprint(r.IntN(9)), Start: from, End: from.Add(time.Duration(1+r.IntN(300)) * time.Minute),
			Nodes: []string{nodes[r.IntN(len(nodes))]},
		}
		switch r.IntN(5) {
		case 0:
			x.Nodes = []string{"ALL"}
		case 1:
			x.Nodes = append(x.Nodes, nodes[0])
		}
		if r.IntN(3) > 0 {
			x.Users = []string{"ada"}
		}
		list = append(list, x)
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// someReservation returns the name of one, or mostly none.
func someReservation(r *rand.Rand, list []cluster.Reservation) string {
	if len(list) == 0 || r.IntN(3) > 0 {
		return ""
	}
	return list[r.IntN(len(list))].Name
}

// TestManyReservationsOfANode has maintenance windows that overlap: however many, they keep a node.
func TestManyReservationsOfANode(t *testing.T) {
	text := "node n1 gpus=8\njob 1 gpus=8\n"
	for i := range 100 {
		text += fmt.Sprintf("reservation m%d nodes=n1 from=-%dm to=%dm\n", i, i+1, 100+i)
	}
	d := Decide(draw(t, text))
	if len(d.Plan.Starts) > 0 || d.Plan.Verdicts[0].Planned != start.Add(199*time.Minute) {
		t.Errorf("decides\n%s", write(d))
	}
}
