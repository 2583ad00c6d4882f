package gsim

import (
	"errors"
	"fmt"
	"io"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/picture"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/cloudsim"
	"github.com/greylag/greylag/pkg/cluster"
)

// writeBurst prints what each value of saved time leads to on a saved cluster.
func (a *asking) writeBurst(name string, data []byte, changes *sim.Changes) error {
	kinds, err := a.clouds.read("burst", nil)
	if err != nil {
		return err
	}
	values, err := list("burst-values", a.values, readAmount)
	if err != nil {
		return err
	}
	rows, may, err := cloudsim.WhatIf(data, changes, kinds, a.seed, values, sim.Options{Check: a.check})
	if errors.Is(err, sim.ErrSnapshot) {
		return noSnapshot(name, err)
	}
	if err != nil {
		return err
	}
	if may == 0 {
		a.Note("no pending job may run on cloud nodes: they are submitted with --burst=allow")
	}
	if a.svg != "" {
		if err := a.tool.file(a.svg, func(w io.Writer) error { return estimates(rows).WriteSVG(w) }); err != nil {
			return err
		}
	}
	switch {
	case a.json:
		return a.writeBurstJSON(rows, may)
	case a.svg == "-":
		return nil
	}
	t := ui.Table{Head: []string{"VALUE", "COST", "NODE_HOURS", "ON_CLOUD", "MEAN_WAIT", "P90", "MAX", "NEVER"}, Right: "rrrrrrrr"}
	for i := range rows {
		r := &rows[i]
		t.Rows = append(t.Rows, []string{
			cluster.FormatMoney(r.Value), cluster.FormatMoney(r.Cloud.Cost), fmt.Sprintf("%.1f", r.Cloud.Hours), fmt.Sprint(r.OnCloud),
			fmt.Sprintf("%.0f", r.Wait.Mean), fmt.Sprintf("%.0f", r.Wait.P90), fmt.Sprintf("%.0f", r.Wait.Max), fmt.Sprint(r.Never),
		})
	}
	return a.WriteTable(t)
}

func (a *asking) writeBurstJSON(rows []cloudsim.Estimate, may int) error {
	type row struct {
		Value   string           `json:"value"`
		Cost    string           `json:"cost"`
		Hours   float64          `json:"node_hours"`
		OnCloud int              `json:"jobs_on_cloud"`
		Started int              `json:"jobs_started"`
		Never   int              `json:"never_started"`
		Wait    sim.Distribution `json:"wait"`
	}
	out := struct {
		Currency string `json:"currency"`
		May      int    `json:"jobs_that_may_burst"`
		Rows     []row  `json:"rows"`
	}{May: may, Rows: []row{}}
	for i := range rows {
		r := &rows[i]
		out.Currency = r.Cloud.Currency
		out.Rows = append(out.Rows, row{
			cluster.FormatMoney(r.Value), cluster.FormatMoney(r.Cloud.Cost), r.Cloud.Hours, r.OnCloud, r.Started, r.Never, r.Wait,
		})
	}
	return a.WriteJSON(out)
}

// estimates returns the picture of estimates: mean wait against cost.
func estimates(rows []cloudsim.Estimate) *picture.Scatter {
	p := &picture.Scatter{Title: "Mean wait against cost of cloud nodes, by the value of an hour of wait saved", YName: "mean wait, hours"}
	const hour = 3600
	for i := range rows {
		r := &rows[i]
		p.XName = "cost, " + r.Cloud.Currency
		at := picture.Point{X: float64(r.Cloud.Cost) / cluster.OneUnit, Y: r.Wait.Mean / hour}
		p.Marks = append(p.Marks, picture.Mark{Point: at, Name: cluster.FormatMoney(r.Value), Strong: r.Value > 0})
	}
	return p
}
