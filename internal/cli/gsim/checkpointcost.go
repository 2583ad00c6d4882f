package gsim

import (
	"errors"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/pkg/cluster"
)

// checkpointing holds the options of the cost of checkpoints.
type checkpointing struct {
	every   time.Duration
	write   time.Duration
	restart time.Duration
	rate    float64
}

// writeCheckpointCosts prints what regular checkpoints cost and save the jobs of a snapshot.
func (a *asking) writeCheckpointCosts(name string, data []byte) error {
	o := sim.CheckpointOptions{Every: a.saves.every, Write: a.saves.write, Restart: a.saves.restart, Rate: a.saves.rate}
	switch {
	case len(a.files)+len(a.submit)+len(a.add)+len(a.remove) > 0 || a.policy != "":
		return &ui.UsageError{Problem: "--checkpoint-every cannot be combined with other changes", Advice: "run gsim what-if once for each question"}
	case o.Every < time.Minute || o.Write < 0 || o.Restart < 0 || o.Rate < 0:
		return &ui.UsageError{Problem: "the checkpoint options are out of range", Advice: "want --checkpoint-every of at least 1m, and no negative --failure-rate, --checkpoint-write or --restart-time"}
	}
	list, rate, err := sim.CheckpointCosts(data, o)
	if errors.Is(err, sim.ErrSnapshot) {
		return noSnapshot(name, err)
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.WriteJSON(struct {
			Interval    float64         `json:"interval_seconds"`
			Restart     float64         `json:"restart_seconds"`
			Rate        float64         `json:"failure_rate"`
			Checkpoints []checkpointRow `json:"checkpoints"`
		}{o.Every.Seconds(), o.Restart.Seconds(), rate, checkpointRows(list)})
	}
	t := ui.Table{Head: []string{"JOB", "USER", "NAME", "NODES", "FAILS", "NOW", "WRITE", "LOST", "THEN", "WRITES", "GPU-H/DAY"}, Right: "lllrrrrrrrr"}
	var saved float64
	for i := range list {
		c := &list[i]
		now := "none"
		if c.Now > 0 {
			now = cluster.FormatElapsed(c.Now)
		}
		saved += c.Saved
		t.Rows = append(t.Rows, []string{
			c.Job.String(), c.User, c.Name, fmt.Sprint(c.Nodes), cluster.FormatElapsed(c.MTTF.Round(time.Second)), now, cluster.FormatElapsed(c.Write.Round(time.Second)),
			percent(c.LostNow), percent(c.LostThen), percent(c.Writes), fmt.Sprintf("%+.1f", c.Saved),
		})
	}
	if err := a.WriteTable(t); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "checkpoints every %s save %.1f GPU-hours per day (negative: cost), at %.1f failures per 1,000 node-days\n", cluster.FormatElapsed(o.Every), saved, rate)
	return err
}

// checkpointRow is one job in JSON.
type checkpointRow struct {
	Job      string  `json:"job"`
	User     string  `json:"user"`
	Name     string  `json:"name"`
	Nodes    int     `json:"nodes"`
	GPUs     int     `json:"gpus"`
	MTTF     float64 `json:"mtbf_seconds"`
	Now      float64 `json:"present_interval_seconds"`
	Write    float64 `json:"write_seconds"`
	Measured bool    `json:"write_measured"`
	LostNow  float64 `json:"lost_now"`
	LostThen float64 `json:"lost_then"`
	Writes   float64 `json:"writes"`
	Saved    float64 `json:"saved_gpu_hours_a_day"`
}

func checkpointRows(list []sim.CheckpointCost) []checkpointRow {
	rows := make([]checkpointRow, len(list))
	for i, c := range list {
		rows[i] = checkpointRow{
			c.Job.String(), c.User, c.Name, c.Nodes, c.GPUs, c.MTTF.Seconds(), c.Now.Seconds(), c.Write.Seconds(), c.Measured,
			c.LostNow, c.LostThen, c.Writes, c.Saved,
		}
	}
	return rows
}
