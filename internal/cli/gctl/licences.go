package gctl

import (
	"context"
	"fmt"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
)

type licenceJSON struct {
	Name   string `json:"name"`
	Total  int64  `json:"total"`
	Used   int64  `json:"used"`
	Free   int64  `json:"free"`
	Wanted int64  `json:"wanted"`
}

// showLicences prints all licences, or the named one.
func (t commands) showLicences(ctx context.Context, c ui.Cluster, args []string) error {
	answer, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Licences: true, Read: t.Read()})
	if err != nil {
		return err
	}
	t.TellStale(answer.AsOf)
	chosen := []licenceJSON{}
	table := ui.Table{Head: []string{"NAME", "TOTAL", "USED", "FREE", "WANTED"}, Right: "lrrrr"}
	for _, l := range answer.Licences {
		if len(args) > 0 && l.Name != args[0] {
			continue
		}
		x := licenceJSON{l.Name, l.Total, l.Used, max(l.Total-l.Used, 0), l.Wanted}
		chosen = append(chosen, x)
		table.Rows = append(table.Rows, []string{x.Name, fmt.Sprint(x.Total), fmt.Sprint(x.Used), fmt.Sprint(x.Free), fmt.Sprint(x.Wanted)})
	}
	switch {
	case len(chosen) == 0 && len(args) > 0:
		t.Complain(fmt.Sprintf("no licence %q", args[0]), "gctl show licences lists them")
		return ui.Exit(ui.NotFound)
	case t.JSON:
		return t.WriteJSON(struct {
			Licences []licenceJSON `json:"licences"`
		}{chosen})
	case len(chosen) == 0:
		t.Note("no licences are defined: add them to the policy with gctl apply")
		return nil
	}
	return t.WriteTable(table)
}
