// Copyright 2025 the dsm-pipeline authors
// SPDX-License-Identifier: Apache-2.0

// Fan curve of the Aurora FC1: the duty is MIN_DUTY below t_low, 255 from t_high on, and rises
// linearly between them. Temperatures are 12-bit two's complement codes of 0.0625 degrees Celsius.
module fc1_fan_curve #(
    parameter int MIN_DUTY = 77  // 30 % of 255
) (
    input  logic signed [11:0] temperature,
    input  logic signed [11:0] t_low,        // 40 degrees after reset: 0x280
    input  logic signed [11:0] t_high,       // 70 degrees after reset: 0x460
    output logic        [ 7:0] duty
);

  logic signed [31:0] above;
  logic signed [31:0] span;
  logic signed [31:0] scaled;

  always_comb begin
    above  = 32'(temperature) - 32'(t_low);
    span   = 32'(t_high) - 32'(t_low);
    scaled = span > 0 ? above * (255 - MIN_DUTY) / span + MIN_DUTY : 32'd255;
    if (temperature < t_low) duty = 8'(MIN_DUTY);
    else if (temperature >= t_high) duty = 8'd255;
    else duty = scaled[7:0];
  end

endmodule

// Fan channel: temperature in, PWM out, with the fan's speed measured.
module fc1_fan_channel (
    input  logic               clk,
    input  logic               rst_n,
    input  logic signed [11:0] temperature,
    input  logic signed [11:0] t_low,
    input  logic signed [11:0] t_high,
    input  logic               tach,
    output logic               pwm,
    output logic        [15:0] edge_count,
    output logic               stall
);

  logic [7:0] duty;

  fc1_fan_curve curve (
      .temperature(temperature),
      .t_low(t_low),
      .t_high(t_high),
      .duty(duty)
  );

  fc1_pwm #(
      .DIVIDER(4)
  ) generator (
      .clk(clk),
      .rst_n(rst_n),
      .duty(duty),
      .pwm(pwm),
      .period_start()
  );

  fc1_tach #(
      .WINDOW(1000)
  ) tachometer (
      .clk(clk),
      .rst_n(rst_n),
      .tach(tach),
      .count(edge_count),
      .valid(),
      .stall(stall)
  );

endmodule
