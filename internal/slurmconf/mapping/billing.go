package mapping

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// billingWeights reads CPU=1.0,Mem=0.25G,GRES/gpu=2.0.
func (m *mapper) billingWeights(at setting) []cluster.BillingWeight {
	weights := map[string]int64{}
	for _, word := range words(at.value) {
		name, text, _ := strings.Cut(word, "=")
		resource := strings.TrimPrefix(strings.ToLower(name), "gres/")
		resource = strings.TrimPrefix(resource, "gpu:")
		factor := 1.0
		if resource == cluster.ResourceMem {
			digits := strings.TrimRight(text, "KMGTkmgt")
			factor = map[string]float64{"": 1024, "K": 1 << 20, "M": 1024, "G": 1, "T": 1.0 / 1024}[strings.ToUpper(text[len(digits):])]
			text = digits
		}
		weight, err := strconv.ParseFloat(text, 64)
		milli := math.Round(weight * factor * 1000)
		switch {
		case err != nil || !(milli >= 0 && milli <= cluster.MaxBilling):
			m.note(Check, at, "%q is not a valid weight: left out", word)
		case resource != cluster.ResourceCPU && resource != cluster.ResourceMem && !strings.HasPrefix(strings.ToLower(name), "gres/gpu"):
			m.note(NotConverted, at, "%s is not billed", name)
		default:
			weights[resource] = int64(milli)
		}
	}
	var all []cluster.BillingWeight
	for resource, milli := range weights {
		all = append(all, cluster.BillingWeight{Resource: resource, Milli: milli})
	}
	slices.SortFunc(all, func(a, b cluster.BillingWeight) int { return strings.Compare(a.Resource, b.Resource) })
	return all
}
