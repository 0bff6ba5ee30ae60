package check_test

import (
	autoscaling "k8s.io/api/autoscaling/v2"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The fields of others' resources that the chart uses, as their documentation names them.

type scaledObject struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		ScaleTargetRef  struct{ APIVersion, Kind, Name string } `json:"scaleTargetRef"`
		MinReplicaCount int32                                   `json:"minReplicaCount"`
		MaxReplicaCount int32                                   `json:"maxReplicaCount"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior autoscaling.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type       string            `json:"type"`
			MetricType string            `json:"metricType"`
			Metadata   map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

type targetRef struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

type draining struct {
	DrainingTimeoutSec int `json:"drainingTimeoutSec"`
}

type backendPolicy struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Default struct {
			TimeoutSec         int      `json:"timeoutSec"`
			ConnectionDraining draining `json:"connectionDraining"`
		} `json:"default"`
		TargetRef targetRef `json:"targetRef"`
	} `json:"spec"`
}

type healthCheckPolicy struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Default struct {
			CheckIntervalSec   int `json:"checkIntervalSec"`
			TimeoutSec         int `json:"timeoutSec"`
			HealthyThreshold   int `json:"healthyThreshold"`
			UnhealthyThreshold int `json:"unhealthyThreshold"`
			Config             struct {
				Type            string `json:"type"`
				HTTPHealthCheck struct {
					Port              int    `json:"port"`
					PortSpecification string `json:"portSpecification"`
					RequestPath       string `json:"requestPath"`
				} `json:"httpHealthCheck"`
			} `json:"config"`
		} `json:"default"`
		TargetRef targetRef `json:"targetRef"`
	} `json:"spec"`
}

type backendConfig struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		TimeoutSec         int      `json:"timeoutSec"`
		ConnectionDraining draining `json:"connectionDraining"`
		HealthCheck        struct {
			Type               string `json:"type"`
			Port               int    `json:"port"`
			RequestPath        string `json:"requestPath"`
			CheckIntervalSec   int    `json:"checkIntervalSec"`
			TimeoutSec         int    `json:"timeoutSec"`
			HealthyThreshold   int    `json:"healthyThreshold"`
			UnhealthyThreshold int    `json:"unhealthyThreshold"`
		} `json:"healthCheck"`
	} `json:"spec"`
}
