package ui

import (
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// burstJSON is what a job requests of leased nodes.
type burstJSON struct {
	Mode    string   `json:"mode"`
	MaxCost string   `json:"max_cost,omitempty"` // decimal
	Regions []string `json:"regions,omitempty"`
	Market  string   `json:"market,omitempty"`
}

func writeBurst(b *greylagv1.Burst) *burstJSON {
	if b == nil {
		return nil
	}
	out := &burstJSON{Mode: wire.Word(b.Mode), Regions: b.Regions, Market: wire.Word(b.Market)}
	if b.MaxCost > 0 {
		out.MaxCost = cluster.FormatMoney(b.MaxCost)
	}
	return out
}

// BurstText describes what a job requests of leased nodes; "" for a job that does not use any.
func BurstText(j *greylagv1.Job) string {
	b := j.Burst
	if b == nil {
		return ""
	}
	words := []string{wire.Word(b.Mode)}
	if b.MaxCost > 0 {
		words = append(words, "at most "+cluster.FormatMoney(b.MaxCost)+" an attempt")
	}
	if len(b.Regions) > 0 {
		words = append(words, "in "+strings.Join(b.Regions, " or "))
	}
	if m := wire.Word(b.Market); m != "" {
		words = append(words, "market "+m)
	}
	return strings.Join(words, ", ")
}

// stagingJSON is a file or directory that is copied.
type stagingJSON struct {
	Path string `json:"path"`
	URL  string `json:"url"`
}

func writeStaging(list []*greylagv1.Staging) (out []stagingJSON) {
	for _, x := range list {
		out = append(out, stagingJSON{x.Path, x.Url})
	}
	return out
}

// StagingWords lists what is copied, as the options have it.
func StagingWords(list []*greylagv1.Staging) (words []string) {
	for _, x := range list {
		words = append(words, cluster.Staging{URL: x.Url, Path: x.Path}.String())
	}
	return words
}
