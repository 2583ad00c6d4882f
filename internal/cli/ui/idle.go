package ui

import (
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// idleJSON is the time of a job's idle GPUs in JSON.
type idleJSON struct {
	GPUs  int32      `json:"gpus"`
	Since *time.Time `json:"since"`
	Hours float64    `json:"gpu_hours"`
	Price string     `json:"price,omitempty"` // credits per GPU-hour
}

func writeIdle(p *greylagv1.IdleGPUs) *idleJSON {
	if p == nil {
		return nil
	}
	return &idleJSON{p.Gpus, Stamp(TimeOf(p.At)), (time.Duration(p.GpuMs) * time.Millisecond).Hours(), CreditsWord(p.Price)}
}
