// Copyright 2025 the dsm-pipeline authors
// SPDX-License-Identifier: Apache-2.0

`default_nettype none

// PWM generator of the Aurora FC1 fan controller. The output is high for `duty` out of 255 steps of
// each period; a duty of 255 keeps it high all the time and a duty of 0 low. A new duty takes
// effect at the start of the next period, so that no period is cut short.
module fc1_pwm #(
    parameter DIVIDER = 4  // clock cycles per step, at least 1
) (
    input  wire       clk,
    input  wire       rst_n,    // asynchronous reset, active low
    input  wire [7:0] duty,     // requested duty, 0 to 255
    output reg        pwm,      // to the fan
    output reg        period_start  // one clock cycle long
);

  localparam [7:0] LAST_STEP = 8'd254;

  reg [15:0] prescaler;
  reg [7:0] step;
  reg [7:0] active_duty;
  wire tick = prescaler == DIVIDER - 1;

  always @(posedge clk or negedge rst_n) begin
    if (!rst_n) begin
      prescaler <= 16'd0;
      step <= 8'd0;
      active_duty <= 8'd0;
      period_start <= 1'b0;
      pwm <= 1'b0;
    end else begin
      period_start <= 1'b0;
      prescaler <= tick ? 16'd0 : prescaler + 16'd1;
      if (tick) begin
        if (step == LAST_STEP) begin
          step <= 8'd0;
          active_duty <= duty;
          period_start <= 1'b1;
        end else begin
          step <= step + 8'd1;
        end
      end
      pwm <= step < active_duty;
    end
  end

endmodule

`default_nettype wire
