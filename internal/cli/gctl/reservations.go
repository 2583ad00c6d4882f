package gctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
)

type reservationJSON struct {
	Name        string            `json:"name"`
	Start       *time.Time        `json:"start"`
	End         *time.Time        `json:"end"`
	State       string            `json:"state"`
	Maintenance bool              `json:"maintenance"`
	Nodes       int32             `json:"nodes"`
	List        string            `json:"list"`
	GPUs        int32             `json:"gpus"`
	GPUsUsed    int32             `json:"gpus_used"`
	Users       []string          `json:"users"`
	Accounts    []string          `json:"accounts"`
	Why         string            `json:"why,omitempty"`
	Jobs        []reservedJobJSON `json:"jobs"`
}

type reservedJobJSON struct {
	Job   string `json:"job"`
	User  string `json:"user"`
	State string `json:"state"`
}

// showReservations prints all reservations as a table, or the details of the named one.
func (t commands) showReservations(ctx context.Context, c ui.Cluster, args []string) error {
	answer, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Reservations: true, Read: t.Read()})
	if err != nil {
		return err
	}
	t.TellStale(answer.AsOf)
	var chosen []*greylagv1.ReservationInfo
	for _, r := range answer.Reservations {
		if len(args) == 0 || r.Name == args[0] {
			chosen = append(chosen, r)
		}
	}
	switch {
	case len(chosen) == 0 && len(args) > 0:
		t.Complain(fmt.Sprintf("no reservation %q", args[0]), "gctl show reservations lists them")
		return ui.Exit(ui.NotFound)
	case t.JSON:
		return t.WriteJSON(reservationsOf(chosen))
	case len(args) > 0:
		return t.Facts("reservation "+chosen[0].Name, t.reservationFacts(chosen[0]))
	case len(chosen) == 0:
		t.Note("no reservations are defined: add them to the policy with gctl apply")
		return nil
	}
	table := ui.Table{Head: []string{"NAME", "STATE", "START", "END", "NODES", "GPUS", "JOBS", "FOR", "NODELIST"}, Right: "llllrrrll", Wide: []int{8, 7}}
	for _, r := range chosen {
		table.Rows = append(table.Rows, []string{
			r.Name, strings.ToLower(wire.Word(r.State)), t.FormatMinute(r.Start.AsTime()), t.FormatMinute(r.End.AsTime()), number(r.Nodes), number(r.Gpus),
			number(int32(len(r.Jobs))), forWhom(r), r.NodeList,
		})
	}
	return t.WriteTable(table)
}

// forWhom returns who may use a reservation.
func forWhom(r *greylagv1.ReservationInfo) string {
	if r.Maintenance {
		return "maintenance"
	}
	return strings.Join(append(append([]string{}, r.Users...), r.Accounts...), ",")
}

func (t commands) reservationFacts(r *greylagv1.ReservationInfo) [][2]string {
	facts := [][2]string{
		{"state", strings.ToLower(wire.Word(r.State))}, {"start", t.FormatTime(r.Start)}, {"end", t.FormatTime(r.End)},
		{"nodes", fmt.Sprintf("%d, %s", r.Nodes, orNone(r.NodeList))}, {"GPUs", fmt.Sprintf("%d, %d used", r.Gpus, r.GpusUsed)},
		{"users", strings.Join(r.Users, ", ")}, {"accounts", strings.Join(r.Accounts, ", ")}, {"why", r.Reason},
	}
	if r.Maintenance {
		facts = append(facts, [2]string{"flags", "maintenance: no jobs may use it"})
	}
	for _, j := range r.Jobs {
		facts = append(facts, [2]string{"job " + j.Job, fmt.Sprintf("of %s, %s", j.User, wire.Word(j.State))})
	}
	return facts
}

func reservationsOf(list []*greylagv1.ReservationInfo) any {
	all := make([]reservationJSON, len(list))
	for i, r := range list {
		all[i] = reservationJSON{
			r.Name, tool.Timestamp(r.Start), tool.Timestamp(r.End), wire.Word(r.State), r.Maintenance, r.Nodes, r.NodeList, r.Gpus, r.GpusUsed,
			some(r.Users), some(r.Accounts), r.Reason, []reservedJobJSON{},
		}
		for _, j := range r.Jobs {
			all[i].Jobs = append(all[i].Jobs, reservedJobJSON{j.Job, j.User, wire.Word(j.State)})
		}
	}
	return struct {
		Reservations []reservationJSON `json:"reservations"`
	}{all}
}
